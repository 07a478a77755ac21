"""The codebooks of the IQ1, IQ2 and IQ3 formats: which combinations of magnitudes a code may name.

A codebook is a set of points: eight elements of three levels, or four of eight.  Written as a number, its first
element the lowest digit, a point has a place among all there are (6,561 or 4,096), and the codes count the chosen
ones upwards.  So a set is a string of bits; here it is deflated and in base 85.
"""

import base64
import zlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Grid:
    """A set of `size` points of `width` elements, each one of `levels`."""

    levels: tuple[int, ...]
    width: int
    size: int
    chosen: str

    @cached_property
    def digits(self) -> NDArray[np.uint8]:
        """Which level each element of each point has, [size, width]."""
        bits = np.frombuffer(zlib.decompress(base64.b85decode(self.chosen), -15), np.uint8)
        numbers = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        digits: NDArray[np.uint8] = (
            numbers[:, None] // len(self.levels) ** np.arange(self.width) % len(self.levels)
        ).astype(np.uint8)
        return digits

    @cached_property
    def points(self) -> NDArray[np.float32]:
        """The elements of each point, [size, width]."""
        return np.array(self.levels, np.float32)[self.digits]


IQ2_XXS = Grid(
    (8, 25, 43), 8, 256,
    "by7>J#4rq#!QHEncOM6OfNtjgS9!Mc?a&boq_N~kZa;tJ!>d+kxj+DFC@{nhxM}r-6t&yWy?pq(0YOlzpO=!v_N0pFC`vj_PpJ6DLgkP~q?)&ED)"
    "yCEG#nD8@Ntf#lv{5duX40bO>_?)ta{Z3Tf3&$;%N>PPc(bCPlNQxV3S`6@7=#KX$+$?sbED0Wi_Xaq2%I~9#vAJ5AE`3vUSwSQR?z+dpS{)CcR{"
    "fmL|`Yvb<*BGJGSZ**}Ha6wU_u+t>=3H|EUc5o^C;#S@M(?7lH(Xs@aV_@g$Rd{6Ub{|fz0`v(",
)  # fmt: skip
IQ2_XS = Grid(
    (8, 25, 43), 8, 512,
    "T~S-Eg)j&l68evc?uRD!zb1D7TRA*h_1@+j#R9|3Fvhq>t4E`IjNYmg!hMNW1`)ca4%!)(LLp{AE2P-VexqzVlR(wFJSBhy1Uq7Ymv!j^v{Xmmyw"
    "M9Bu#qHS+&Ct$uoSRW+V>XU49pTgV<aHBi%%6Fn5|ZLRwzByoJpF%kV-K{7N+MwUWGFyhps6Zr^&0d0L>^%c}ofMKEsUCXoshWXilv$U$M@#HzYI"
    "4!!Ua_>=n1C=7nG;?a$_h29%-8Wb=9wZiv(B-%M&W=`RUqh-WB1A^kDh-y$Ko(7}$|4<nzVLxsCs_uKjvxvRvOaWLgr>FxqPyaJp#-H6Rlu%NfVK"
    "u!y)d`a#fqAy$iT*@kKG$+#IrS5AAue~V#AI;%yu3)k*@6+i100",
)  # fmt: skip
IQ2_S = Grid(
    (8, 25, 43), 8, 1024,
    "ZBku|1|bY<LEkIreJYIa3ike2*|a*l-?A&i{Kdp1YG%uZwOsHrht=HbUNS9FDR>MsYkRC|R&fDRK&z%Hq|KZq%$hAdfRu=<WFaD@ZEHcft-39iuu"
    "8M`o-)-$zSb+~Pzct{fIwGU$sr~>5dI}`C_$U{YOCkOh4$>44@+nz%+K^7#V^4EN@h@lTwueOAZqbVA&yVnn5KKRRv&L8Ux&RVkL<q8winguK(oI"
    "NAt3cYun{b@p>!Z05NyGsKanfocdZXWy5=J?ASDF+5sX?Q$unApL-kF$9g5pXP9R>Nf)W_r?0BDYOW;$>J7R`v8>Q|dooO8NowT&e!Y&t&oPQ#-L"
    "-UG*l{sW^=T{xd+0V)_xvbcfP&@~~DgSg><U2MX;nQm%^f53Qr+0^rp9wi(B&iquFs&=ddOQ4;8Q3+-R}H_FE8m*F00",
)  # fmt: skip
IQ3_XXS = Grid(
    (4, 12, 20, 28, 36, 44, 52, 62), 4, 256,
    "O;Irp!Y~XxTd`DS3Pbmb3Gs?_V22+?oe-~J<eB)Krf^l&CO+Stllf(ufJ?TsX@SgYFKk#gTi_5(Xr<w@0m&c23k7(<ONwlHZUUHE6tk(XkPM;~73"
    "Z$vIQa@1s(}>SmT&aOHTs@nn>BHgp3s}<H_@xP8;v`1jUZ6VuD^ueo%?KNQe{^_n(wR(&xXPnQJNUcXM5v$ges&9R(Bh8nv@Yk263_d-(@|Qtf-@"
    "b<D|4ZKteoq+DL?h$nQN|w7(6*b^Qw!(tE=mzRP`N+)M4U95eAqMqCZ1{f_RKf%pO",
)  # fmt: skip
IQ3_S = Grid(
    (1, 3, 5, 7, 9, 11, 13, 15), 4, 512,
    "Em6Tr!$1&yGt9zfPrD)FHQh$2`HHR7gL)}~_&aH-(Ds(%2Z&Y#`;*RYoWsDpH}l@x<mYv6znwW<&kxZf%GW~-XNSs0^XSbGX<tjlpa%E$6UinAhJ"
    "dehMgXoa<{4|2r@$2(Ea@DiYDrGjHs~TP8n~726_%kjVy)d7ZZm&*Ihx)Kx8~5*qWlSN!+X>>+&H0xEvio8&a(_;L2p?^FI!Gz36Nju-`R5S9SF1"
    "{(Wr`ZIMT6&wRfs20c=|F2^I+@hJ$HynjoXF9`2mXY*c*4mIfj3Ow7E2AF|v>xe};?M>d#&tU?k5qa@!8OI{$hOWnba26%354U&|Fa(5_|7n{<x`"
    "iyD-Y;^FM^wJ8E=j@`Tk5I6}<eNhm{9kK?N#q5>9t)l8rM`xXN0)QN{E=vKmC3vOg-ILu0{",
)  # fmt: skip
IQ1 = Grid(
    (-1, 0, 1), 8, 2048,
    "EmA>CoJSabcdFraOl4y~L2`QctFhBr5$i4KWszN2^kPEt2RzxdNXa=(J}0~Bm)R6TAha}>aWKg^4Xg1`wx6&8PgZ(p>8%H8J%qX*0$v&n#LTX}&A"
    "jlu&-1*`bL~P@H*DrIRz7ogN!#-%DXPy$iprG>BmIUcN=E^e`9PX<%ku|*5Mto|zA{(}s6v{|M**&<@CSp543nr%)tPHp$xUn<(&He<oVU2Yjwl2"
    "KF5v~ag!p6pC3Cdfyl0#K(#^w8wxxzzakl&C&_fnOOipK9F$6jLxBWb(qJ`zsveyFRTu?ZoXrNNKS~ti(c9*E8=xUH*2_MZzOk&Ha#8erfvWu39p"
    "Cs19dkQNh=qfZYa~UeRPZek-ab+s%50=HLc*e*}py3y~DO|SV-PfQvG7+;HD5xf;vmyO9HL|$#*Rw`r$vq7J8x37PE2&y52`$mn&Tlrh>pz-*9Rm"
    "i^r9g>kSSvD<sA-<HTiLrqYl;>%7aa>L)9mc=YG?0t(M^8WzIAx~-|d&LzRC8!c>Br8%kkskgMW0K_wAvY$4xh=nkU)V!JVXUVPf&f@zo*(%ee1{"
    "fhozK(y!{?10}%1{p2H1i13y6ev3VAYqQIeFTbDsee)o%@{@i~jQsJW4|w+ugt-+`{$dtS*UUgN3feBP<)|DERd}v?DSHzBTRz-Nx!+*7HaTLZWM"
    "fDHEne44E$<T`uJ(800+zd|0Zk*JQFl3dDHGsbRKY=S;Xb8`kA?`m^?IYhxC|63@m!#QwUouCJt$hJv$@S+dG$@x(-pD!vzdC8a2A?yeIXQyd0+G"
    "$yJjq6o{Ww`4V|XUdlg+f1GApt6Ucv9{y*jZP-*r2hyWmP@r*i_fvOIOg9y&eRl419tfw#?!&LARhDor@x(jpf0R",
)  # fmt: skip
