// AVX-512 (F, BW, DQ, VL).
#include "primitives.h"

#ifdef TORCHAPL_X86

#include <immintrin.h>

#define TORCHAPL_CAPABILITY avx512
#define TORCHAPL_NAME "AVX-512"
#define TORCHAPL_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#define TORCHAPL_BYTES 64

#include "avx512.inc"

#endif
