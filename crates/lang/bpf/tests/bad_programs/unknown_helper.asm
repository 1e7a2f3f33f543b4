    call 7                  ;fixed
    call 8                  ;bad
    and r0, 1
    exit
