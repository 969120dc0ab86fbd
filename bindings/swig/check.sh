#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compares admitted.i with the public headers: every function, every struct and every field that is no number has to be let
# in or left out there, by name; what is named there has to exist. A pointer of a function that is let in needs an extent
# (extents.i): the compiler sees to that.
#
#   bindings/swig/check.sh [FOLDER-OF-HEADERS]

set -u
cd "$(dirname "$0")/../.." || exit 1
include=${1:-include/pagedkv}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

# Comments and preprocessor lines (also those that go on) are taken out, declarations brought to one line each.
cat "$include"/*.h | awk '
    /^[ \t]*#/ || continued { continued = /\\$/; next }
    { print }' | tr '\n' ' ' | sed -E 's,/\*([^*]|\*+[^*/])*\*+/,,g; s/([;{}])/\1\n/g' > "$tmp/declarations"

grep -oE 'PKV_API[^;(]*\bpkv_[a-z0-9_]+ *\(' "$tmp/declarations" | sed -E 's/.*\bpkv_([a-z0-9_]+) *\(/function \1/' > "$tmp/found"
awk '
    /typedef struct pkv_[a-z0-9_]+ *\{/ { match($0, /struct pkv_[a-z0-9_]+/); name = substr($0, RSTART + 11, RLENGTH - 11)
                                          print "struct " name; inside = 1; next }
    inside && /\}/ { inside = 0; next }
    inside {
        gsub(/^[ \t]+|[ \t]*;[ \t]*$/, "")
        if ($0 == "") next
        number = $0 ~ /^(size_t|u?int(8|16|32|64)_t|double|pkv_status) [a-z0-9_, ]+$/
        field = $0
        if (field ~ /\(\*/) { sub(/.*\(\*[ ]*/, "", field); sub(/\).*/, "", field) }
        sub(/\[[^]]*\]$/, "", field); sub(/.*[ *]/, "", field)
        if (!number) print "field " name "." field
    }' "$tmp/declarations" >> "$tmp/found"
sort -u -o "$tmp/found" "$tmp/found"

list() { sed -nE "$1" bindings/swig/admitted.i; }
{
    list 's/^PKV_FUNCTION\(([a-z0-9_]+)\)$/\1/p'
    list 's/^PKV_STRUCT\(([a-z0-9_]+)\)$/\1/p'
    list 's/^PKV_LEFT_OUT\(([a-z0-9_]+), ".+"\)$/\1/p'
} | sort > "$tmp/names"
list 's/^PKV_(FIELD|TEXT_FIELD|LEFT_OUT_FIELD)\(([a-z0-9_]+), ([a-z0-9_]+)(, ".+")?\)$/\2.\3/p' | sort > "$tmp/fields"
list 's/^PKV_STRUCT\(([a-z0-9_]+)\)$/\1/p' | sort > "$tmp/structs"

result() { # name; standard input: what is wrong
    if [ -s "$tmp/wrong" ]; then
        echo "FAIL $1"
        sed 's/^/    /' "$tmp/wrong"
        status=1
    else
        echo "PASS $1"
    fi
}

awk '$1 != "field" { print $2 }' "$tmp/found" | sort > "$tmp/declared"
comm -23 "$tmp/declared" "$tmp/names" | sed 's/.*/pkv_&: give it a line in bindings\/swig\/admitted.i/' > "$tmp/wrong"
[ "$(grep -c '^function' "$tmp/found")" -ge 90 ] || echo "only $(grep -c '^function' "$tmp/found") functions were found in $include" >> "$tmp/wrong"
result "every function and struct of the headers is let in or left out by name"
{ comm -13 "$tmp/declared" "$tmp/names"; uniq -d "$tmp/names"; uniq -d "$tmp/fields"; } |
    sed 's/.*/&: is in no header, or twice in bindings\/swig\/admitted.i/' > "$tmp/wrong"
result "what is let in or left out exists"
# Only structs that are let in have fields to be reached.
awk '$1 == "field" { print $2 }' "$tmp/found" | awk -F. 'NR == FNR { in_list[$1] = 1; next } $1 in in_list' "$tmp/structs" - |
    sort > "$tmp/wanted"
comm -3 "$tmp/wanted" "$tmp/fields" | sed 's/^\t*\(.*\)/pkv_\1: no number, so bindings\/swig\/admitted.i and structs.i have to say how it is reached (or it is gone)/' \
    > "$tmp/wrong"
result "every field that is no number is reached somehow, or left out"
# The layers by hand name fields one by one: what is new in a struct is to be had in each language (Python and Lua take any field).
awk '
    /typedef struct pkv_[a-z0-9_]+ *\{/ { match($0, /struct pkv_[a-z0-9_]+/); name = substr($0, RSTART + 11, RLENGTH - 11); inside = 1; next }
    inside && /\}/ { inside = 0; next }
    inside && !/\(\*/ {
        gsub(/^[ \t]+|[ \t]*;[ \t]*$/, "")
        for (i = split($0, parts, /, */); i > 0; --i) {
            field = parts[i]; sub(/\[[^]]*\]$/, "", field); sub(/.*[ *]/, "", field)
            if (field != "" && field != "struct_size" && field != "reserved") print name, field
        }
    }' "$tmp/declarations" | sort | awk 'NR == FNR { in_list[$1] = 1; next } $1 in in_list' "$tmp/structs" - > "$tmp/every"
list 's/^PKV_LEFT_OUT_FIELD\(([a-z0-9_]+), ([a-z0-9_]+), .*/\1 \2/p' > "$tmp/left_out"
java=bindings/java/src/main/java/org/pagedkv go=bindings/go rust=bindings/rust/pagedkv/src
text_of() { # folder, pattern: the files that have to do with a struct, without a process for each field
    grep -rlE "$2" "$1" | grep -E '\.(java|go|rs)$' | grep -v '_test\.go$' | xargs cat /dev/null
}
last='' in_java='' in_go='' in_rust=''
while read -r struct field; do
    if [ "$struct" != "$last" ]; then
        in_java=$(text_of $java "\\b$struct\\b") && in_java=${in_java,,}
        in_go=$(text_of $go "\\bpkv(go)?_$struct\\b")
        in_rust=$(text_of $rust "\\b(pkv_$struct|PKV_${struct^^}_INIT)\\b")
        last=$struct
    fi
    # Lists and structs have accessors by their entries, and lengths go with them.
    [[ $field == num_* ]] && grep -qx "$struct ${field#num_}" "$tmp/every" ||
        [[ $in_java =~ (get|set|add)_?($field|${field%s}|${field%_strides}|${field%_names})(_[a-z_]*)?\( ]] || echo "pkv_$struct.$field: not in $java"
    [[ $in_go =~ \.$field[^a-z0-9_] ]] || echo "pkv_$struct.$field: not in $go"
    [[ $in_rust =~ [.\ ]$field[^a-z0-9_] ]] || echo "pkv_$struct.$field: not in $rust"
done < <(grep -vxFf "$tmp/left_out" "$tmp/every") > "$tmp/wrong"
[ "$(wc -l < "$tmp/every")" -ge 350 ] || echo "only $(wc -l < "$tmp/every") fields were found in $include" >> "$tmp/wrong"
result "every field of a struct is reached from Java, Go and Rust"
# Lines of another form would be overlooked here, and by nobody else.
grep -E '^PKV_' bindings/swig/admitted.i | grep -vE '^PKV_((FUNCTION|STRUCT)\([a-z0-9_]+\)|(TEXT_)?FIELD\([a-z0-9_]+, [a-z0-9_]+\)|LEFT_OUT(_FIELD)?\([a-z0-9_]+, ([a-z0-9_]+, )?".+"\))$' \
    > "$tmp/wrong"
result "admitted.i has no line of another form"
for header in "$include"/*.h; do
    name=$(basename "$header")
    [ "$name" = pagedkv.h ] || grep -q "^%include <pagedkv/$name>" bindings/swig/headers.i || echo "$name: is not in bindings/swig/headers.i"
done > "$tmp/wrong"
result "every header is read"
exit $status
