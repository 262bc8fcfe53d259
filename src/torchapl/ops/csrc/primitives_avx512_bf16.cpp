// AVX-512 with its instruction that rounds to bfloat16.
#include "primitives.h"

#ifdef TORCHAPL_X86_BF16

#include <immintrin.h>

#define TORCHAPL_CAPABILITY avx512_bf16
#define TORCHAPL_NAME "AVX-512-BF16"
#define TORCHAPL_TARGET "avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#define TORCHAPL_BYTES 64
#define TORCHAPL_ROUNDS_BFLOAT16

#include "avx512.inc"

#endif
