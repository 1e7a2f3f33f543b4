    call 7                  ;mended
    call 8                  ;bad
    and r0, 1
    exit
