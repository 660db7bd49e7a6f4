/* An entry for a user missing from /etc/passwd, as in a container started with `--user 12345`.
 *
 * Not a Python module: embedded/postgres.py preloads it into the programs that create PostgreSQL's
 * data directory, which refuse a user without a name, although they do not use the name.
 */
#include <pwd.h>

struct passwd *getpwuid(uid_t uid)
{
    static struct passwd entry = {
        .pw_name = "snapbid", .pw_passwd = "", .pw_gecos = "", .pw_dir = "/", .pw_shell = "",
    };
    entry.pw_uid = uid;
    return &entry;
}
