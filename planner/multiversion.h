// Marks a function that is compiled for AVX2 too and chosen when the library
// is loaded: baseline x86-64 has no vector maximum of 32-bit integers.
// Resolvers run before sanitizers are set up, and musl has none.

#ifndef ROUTEPACK_PLANNER_MULTIVERSION_H_
#define ROUTEPACK_PLANNER_MULTIVERSION_H_

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ROUTEPACK_MULTIVERSION __attribute__((target_clones("avx2", "default")))
#else
#define ROUTEPACK_MULTIVERSION
#endif

#endif  // ROUTEPACK_PLANNER_MULTIVERSION_H_
