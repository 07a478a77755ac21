//# y[token, row] = sum over k of W[row, k] x[token, k], W one quantised stream of tiles.
//#
//# An invocation owns ${R} neighbouring rows of one of ${L} row lanes and, of the inner
//# axis, the superblocks of one of ${KL} k-lanes; a workgroup does ${MT} tokens.  The
//# order of the sum is: element by element within a group that shares a scale, group by
//# group, then over the k-lanes.  It depends on nothing else.  A k-lane that has no superblock
//# in the last step does the row's last unit again and drops it: no lane may leave the loop early.
//# ${A} rows at a time, so that some four sums are in the making at once: with one each addition would wait for the one before,
//# with many more an adapter of 16 registers stores each product.
//# With `heads` a stream holds the W of several, each for its part of x and of y.
//# With `experts` a stream holds the W of several, a token is a pair of row and rank, and those of a workgroup share an expert.
//% include "include/dims.wgsl"
@group(0) @binding(0) var<uniform> dims: Dims;
//% include "include/stream.wgsl"
//% from "include/rows.wgsl" import rows_in with context
${rows_in(2, "x")}  // [token, k / 4]
//% from "quant/" ~ format ~ ".wgsl" import open, setup, lift, weight, fold with context
//% import "quant/" ~ format ~ ".wgsl" as unpacker with context
//% if unpacker.declare is defined
${unpacker.declare()}
//% endif
//% from "epilogue/" ~ epilogue ~ ".wgsl" import bindings, input_row, finish with context
${bindings()}
//% include "include/reduce.wgsl"
//% if normed
//% include "include/norm.wgsl"
//% endif
//% if experts
@group(0) @binding(9) var<storage, read> chosen: array<u32>;    // [pair]
const NONE = 0xffffffffu;
//% if MT > 1
@group(0) @binding(10) var<storage, read> order: array<u32>;    // [group, ${MT}]: pairs, or NONE
//% endif
//% endif
//% macro row_of(t)
${input_row("row" ~ t if experts else "token" ~ t)}
//% endmacro
//% if KL > 1 and reduce == "shared"
var<workgroup> partial_y: array<f32, ${S * R * MT}>;
//% endif
//% macro load(planes, base)
//% for p in planes
//% if p.pair
let p_${p.name} = select(stream(${base} + ${p.offset}u + r / 2u).xy, stream(${base} + ${p.offset}u + r / 2u).zw, (r & 1u) == 1u);
//% else
//% for v in range(p.vectors)
let p_${p.name}_${v} = stream(${base} + ${p.offset + v * L}u + r);
//% endfor
//% endif
//% endfor
//% endmacro

@compute @workgroup_size(${S})
fn linear(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
//% if heads
  let tile = group.x % dims.tiles;
  let head = dims.expert0 + group.x / dims.tiles;
//% else
  let tile = group.x;
//% endif
//% if KL > 1
  let r = lane % ${L}u;
  let kl = lane / ${L}u;
//% else
  let r = lane;
//% endif
//% if experts
//% for t in range(MT)
  let token${t} = ${"order[group.y * %du + %du]" % (MT, t) if MT > 1 else "group.y"};
//% endfor
  if (token0 == NONE) { return; }
//% for t in range(MT)
  let row${t} = select(token${t}, token0, token${t} == NONE) / dims.spread;
//% endfor
  let expert = chosen[token0] - dims.expert0;
  if (expert >= dims.experts) { return; }
  let tile_in = expert * dims.tiles + tile;
//% elif heads
  let tile_in = group.x;
//% else
  let tile_in = tile;
//% endif
  let tile_at = tile_in * (${"(dims.units + %du) / %du" % (units - 1, units) if units > 1 else "dims.units"} * ${block}u + ${R * L // 4 if bias else 0}u);
  let at = tile_at + ${R * L // 4 if bias else 0}u;
//% for t in range(MT)
//% if not experts
  let token${t} = group.y * ${MT}u + ${t}u;
//% endif
  let x${t} = ${row_of(t)} * dims.x_stride${" + head * dims.head_in" if heads};
//% for j in range(R)
  var y${j}_${t} = 0.0;
//% endfor
//% endfor
//% if unpacker.begin is defined
${unpacker.begin()}
//% endif
//# one loop, also over superblocks: nested loops cost software adapters half their speed
//% if units > 1
  for (var i = 0u; i < dims.steps * ${units}u; i++) {
//% if KL > 1
    let mine = (i / ${units}u * ${KL}u + kl) * ${units}u + i % ${units}u;
    let unit = min(mine, dims.units - 1u);
//% else
//% if ragged
    let mine = i;
    let unit = min(mine, dims.units - 1u);
//% else
    let unit = i;
//% endif
//% endif
    let base = at + unit / ${units}u * ${block}u;
    let b = base + ${head_vectors}u + unit % ${units}u * ${unit_vectors}u;
    ${load(head, "base")}
//% for j in range(R)
    ${open(j)}
//% endfor
//% else
  for (var i = 0u; i < dims.steps; i++) {
//% if KL > 1
    let mine = i * ${KL}u + kl;
    let unit = min(mine, dims.units - 1u);
//% else
    let unit = i;
//% endif
    let b = at + unit * ${block}u;
//% endif
    {
      ${load(planes, "b")}
//% for j in range(R)
      ${setup(j)}
//% endfor
//% for t in range(MT)
//% if broadcast
      let v${t} = x_at(x${t} + unit * 8u + lane);
//% else
//% for i in range(8)
      let v${t}_${i} = x_at(x${t} + unit * 8u + ${i}u);
//% endfor
//% endif
//% endfor
//% for t in range(MT)
//% for k in range(32)
//% if broadcast
      let x${t}_${k} = subgroupBroadcast(v${t}.${c[k % 4]}, ${k // 4}u);
//% else
      let x${t}_${k} = v${t}_${k // 4}.${c[k % 4]};
//% endif
//% if lift(k) | int
      let z${t}_${k} = x${t}_${k} * ${1 / 2 ** (lift(k) | int)};
//% endif
//% endfor
//% endfor
//% for g in range(32 // G)
//% if sums
//% for t in range(MT)
      var s${t}_${g} = 0.0;
//% for k in range(g * G, g * G + G)
      s${t}_${g} += x${t}_${k};
//% endfor
//% endfor
//% endif
//% for first in range(0, R, A)
//% for j in range(first, first + A)
//% for t in range(MT)
      var a${j}_${t}_${g} = 0.0;
//% endfor
//% endfor
//% for k in range(g * G, g * G + G)
//% for j in range(first, first + A)
//% if unpacker.fetch is defined
      ${unpacker.fetch(j, k)}
//% endif
      let w${j}_${k} = ${weight(j, k)};
//% for t in range(MT)
      a${j}_${t}_${g} = fma(w${j}_${k}, ${"z" if lift(k) | int else "x"}${t}_${k}, a${j}_${t}_${g});
//% endfor
//% endfor
//% endfor
//% for j in range(first, first + A)
//% for t in range(MT)
//% set folded = fold(j, g, "a" ~ j ~ "_" ~ t ~ "_" ~ g, "s" ~ t ~ "_" ~ g, "y" ~ j ~ "_" ~ t)
      y${j}_${t} = ${"select(y%d_%d, %s, mine == unit)" % (j, t, folded) if KL > 1 or ragged else folded};
//% endfor
//% endfor
//% endfor
//% endfor
    }
  }
//% if KL > 1
//% if reduce == "subgroup"
//% for i in range(log2_KL)
//% for t in range(MT)
//% for j in range(R)
  y${j}_${t} += subgroupShuffleXor(y${j}_${t}, ${L * KL // (2 ** (i + 1))}u);
//% endfor
//% endfor
//% endfor
//% else
//% for t in range(MT)
//% for j in range(R)
  partial_y[${(t * R + j) * S}u + lane] = y${j}_${t};
//% endfor
//% endfor
  workgroupBarrier();
//% for t in range(MT)
//% for j in range(R)
  y${j}_${t} = ${tree((t * R + j) * S)};
//% endfor
//% endfor
//% endif
//% endif
  let row = dims.row0 + tile * ${R * L}u + r * ${R}u;
  let owned = ${"kl == 0u && " if KL > 1 else ""}tile * ${R * L}u + r * ${R}u < dims.rows;
//% if bias
//% for v in range(R // 4)
  let bias${v} = bitcast<vec4<f32>>(stream(tile_at + r * ${R // 4}u + ${v}u));
//% endfor
//% endif
//% for t in range(MT)
//% if normed
  let n${t} = norm_scale(${row_of(t)}, lane);
//% endif
//% for v in range(R // 4)
//% set raw = "vec4<f32>(" ~ "y" ~ 4 * v ~ "_" ~ t ~ ", y" ~ (4 * v + 1) ~ "_" ~ t ~ ", y" ~ (4 * v + 2) ~ "_" ~ t ~ ", y" ~ (4 * v + 3) ~ "_" ~ t ~ ")"
//% if normed and bias
  let z${t}_${v} = fma(${raw}, vec4<f32>(n${t}), bias${v});
//% elif normed
  let z${t}_${v} = ${raw} * n${t};
//% elif bias
  let z${t}_${v} = ${raw} + bias${v};
//% else
  let z${t}_${v} = ${raw};
//% endif
//% endfor
  let owned${t} = owned${" && token%d != NONE" % t if experts else ""};
  ${finish(t)}
//% endfor
}
