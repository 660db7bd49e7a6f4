/* The entry of a user whom /etc/passwd lacks, as in a container started with `--user 12345`.
 *
 * No Python module: embedded/postgres.py preloads it into the programs of PostgreSQL that create a
 * data directory, which refuse a user without a name, although the name is used for nothing.
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
