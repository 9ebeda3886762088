/* What this machine can do at most: `limits read THREADS` prints bytes per second read from memory,
   `limits int8 THREADS` multiply-adds of 8-bit integers per second, 0 if it was built without VNNI. */
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512VNNI__
#include <immintrin.h>
#endif

enum { PASSES = 9, WORDS = 1 << 26, TURNS = 100000000 };

/* 512 MiB, far more than any cache holds; the best of some passes. */
static double read_rate(void) {
    uint64_t *words = aligned_alloc(64, WORDS * sizeof *words);
    uint64_t total = 0;
    double best = 0;
    if (!words) return 0;
#pragma omp parallel for schedule(static)
    for (int i = 0; i < WORDS; i++) words[i] = i;
    for (int pass = 0; pass < PASSES; pass++) {
        double start = omp_get_wtime();
#pragma omp parallel for simd schedule(static) reduction(+ : total)
        for (int i = 0; i < WORDS; i++) total += words[i];
        double rate = WORDS * sizeof *words / (omp_get_wtime() - start);
        if (rate > best) best = rate;
    }
    if (total == 1) puts("");
    free(words);
    return best;
}

/* Independent dot-product instructions on registers only: 64 multiply-adds each. */
static double int8_rate(void) {
#ifdef __AVX512VNNI__
    double start = omp_get_wtime();
    int sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(omp_get_thread_num() + 1);
        __m512i r0 = a, r1 = a, r2 = a, r3 = a, r4 = a, r5 = a, r6 = a, r7 = a, r8 = a, r9 = a;
        for (int i = 0; i < TURNS; i++) {
            r0 = _mm512_dpbusd_epi32(r0, a, b); r1 = _mm512_dpbusd_epi32(r1, a, b);
            r2 = _mm512_dpbusd_epi32(r2, a, b); r3 = _mm512_dpbusd_epi32(r3, a, b);
            r4 = _mm512_dpbusd_epi32(r4, a, b); r5 = _mm512_dpbusd_epi32(r5, a, b);
            r6 = _mm512_dpbusd_epi32(r6, a, b); r7 = _mm512_dpbusd_epi32(r7, a, b);
            r8 = _mm512_dpbusd_epi32(r8, a, b); r9 = _mm512_dpbusd_epi32(r9, a, b);
        }
        r0 = _mm512_add_epi32(_mm512_add_epi32(r0, r1), _mm512_add_epi32(r2, r3));
        r4 = _mm512_add_epi32(_mm512_add_epi32(r4, r5), _mm512_add_epi32(r6, r7));
        sum += _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_add_epi32(r0, r4), _mm512_add_epi32(r8, r9)));
    }
    double seconds = omp_get_wtime() - start;
    if (sum == 1) puts("");
    return 10.0 * 64 * TURNS * omp_get_max_threads() / seconds;
#else
    return 0;
#endif
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    omp_set_num_threads(atoi(argv[2]));
    printf("%.0f\n", strcmp(argv[1], "read") == 0 ? read_rate() : int8_rate());
    return 0;
}
