    mov %eax, %edi
1:  mov $15, %eax
    syscall
    jmp 1b
    .balign 16
    push %rbx
    mov %rdi, %rbx
    sub $32, %rsp
    mov $228, %eax
    xor %edi, %edi
    mov %rsp, %rsi
    syscall
    mov (%rsp), %rax
    cmp 16(%rbx), %rax
    jge 2f
    mov $14, %eax
    mov $2, %edi
    lea 32(%rbx), %rsi
    lea 16(%rsp), %rdx
    mov $8, %r10d
    syscall
    lea 0x100(%rbx), %rdi
    call *40(%rbx)
    mov $14, %eax
    mov $2, %edi
    lea 16(%rsp), %rsi
    xor %edx, %edx
    mov $8, %r10d
    syscall
2:  mov %rbx, %rdi
    mov 24(%rbx), %rsi
    mov 48(%rbx), %rdx
    add $32, %rsp
    pop %rbx
    mov $11, %eax
    jmp *%rdx
