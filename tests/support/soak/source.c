/* Gives the connections of the processes that load it an address: LD_PRELOAD=source.so SOURCE=IPv4.
 *
 * Without it all programs have 127.0.0.1, and no rule of routing tells them apart; so does a node of
 * Redis at its second try, where the first, by its own address, found no route. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

int connect(int handle, const struct sockaddr *to, socklen_t size) {
    static int (*real)(int, const struct sockaddr *, socklen_t);
    if (!real) real = dlsym(RTLD_NEXT, "connect");
    struct sockaddr_in own = {.sin_family = AF_INET};
    const char *source = getenv("SOURCE");
    if (to->sa_family == AF_INET && source && inet_pton(AF_INET, source, &own.sin_addr) == 1) {
        int yes = 1; /* the port is chosen by connect, as always */
        setsockopt(handle, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
        (void)!bind(handle, (struct sockaddr *)&own, sizeof own); /* fails where it is bound */
    }
    return real(handle, to, size);
}
