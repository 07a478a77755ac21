fn squares(v: vec4<f32>, sum: f32) -> f32 { return fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, sum)))); }
