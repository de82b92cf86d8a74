#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* With arguments, as gpumon runs an interpreter: leave a mark with the identity that it was given.
   Without, as the program of a user: look like a Python whose file was removed, and wait. */
int main(int count, char **arguments)
{
    if (count > 1) {
        char line[100];
        int mark = open(FOLDER "/canary", O_WRONLY | O_CREAT | O_APPEND, 0666);
        snprintf(line, sizeof line, "%d %d %d %d\n", (int)geteuid(), (int)getegid(), getgroups(0, NULL),
                 prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
        return mark < 0 || write(mark, line, strlen(line)) < 0;
    }
    int library = open(LIBRARY, O_RDONLY);
    if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, library, 0) == MAP_FAILED)
        return 3;
    if (UNLINK)
        unlink(PROGRAM);
    puts("on");
    fflush(stdout);
    pause();
    return 0;
}
