typedef unsigned int uint32_t;

/* Four instructions in each of 90,000 rounds, more than the 262,144 of the default budget. */
uint32_t burn(uint32_t start)
{
    for (unsigned long i = 0; i < 90000; i++) {
        start = start * 1664525u + 1013904223u;
        /* The compiler neither computes the loop nor counts down, which the verifier could not follow. */
        __asm__ volatile("" : "+r"(start), "+r"(i));
    }
    return start | 1;
}
