# Shared by the scripts of this folder: `fresh` writes the programs, `sub` edits one, `fail` and `fine` run a command and keep its log.
# Run as root on a host without a GPU: /home/user/venv has the packages, and the programs run as the account "user" on a host named node01.
LOGS=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WORK=/home/user/train
grep -q ' node01$' /etc/hosts || echo '127.0.0.1 node01' >> /etc/hosts

fresh() { mkdir -p "$WORK"; find "$WORK" -mindepth 1 -delete; (cd "$WORK" && . "$HERE/programs.sh"); chown -R user:user "$WORK"; }
sub() { local file=$1 before; before=$(cat "$WORK/$1"); shift; for change in "$@"; do sed -i -E "$change" "$WORK/$file"; done
  [ "$before" = "$(cat "$WORK/$file")" ] && echo "no change: $file $*" >&2; chown user:user "$WORK/$file"; }
put() { cat > "$WORK/$1"; chown user:user "$WORK/$1"; }

# Arguments: folder, name of the log, command. PRE runs first, as root, in mount and host name namespaces that end with the command.
keep() {
  local folder=$1 name=$2; shift 2
  PRE="${PRE:-true}" timeout "${LIMIT:-240}" unshare -u -m bash -c 'hostname node01; eval "$PRE"; cd '"$WORK"'
    exec setpriv --reuid user --regid user --init-groups env -i HOME=/home/user USER=user LANG=C.UTF-8 TERM=xterm OMP_NUM_THREADS=1 \
      PATH=/home/user/venv/bin:/usr/local/bin:/usr/bin:/bin "$@"' keep "$@" > "$LOGS/$folder/$name.log" 2>&1 < /dev/null
  echo "$folder/$name: exit $?, $(wc -l < "$LOGS/$folder/$name.log") lines, $(wc -c < "$LOGS/$folder/$name.log") bytes"
  PRE=true LIMIT=240
}
fail() { keep failed "$@"; }
fine() { keep healthy "$@"; }
