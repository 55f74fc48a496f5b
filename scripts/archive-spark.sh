#!/bin/sh
# Makes the file from which Spark's JVM takes its classes ready-made (see elt_assets/lake/spark/class_archive.py):
# about a minute on two cores, and 180 MB; again after a change of Java or PySpark.
# Usage: scripts/archive-spark.sh BIN [--if-missing] (BIN: the environment's directory of commands).
set -eu

bin=${1:?usage: scripts/archive-spark.sh BIN [--if-missing]}
module=elt_assets.lake.spark.class_archive
if [ "${2:-}" = --if-missing ]; then
    "$bin/python" -c "import sys, $module as m; sys.exit(not m.java_options())" && exit
    echo "Making an archive of Spark's classes; this is done once and takes about a minute."
fi
folder=$("$bin/python" -c "import $module as m; print(m.folder())")
mkdir -p "$folder"
work=$(mktemp -d "$folder/draft.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

unset ELT_LAKE ELT_STAGING ELT_DEFS ELT_SPARK
export DAGSTER_HOME="$work"

# One sync of the demo, with these options for the JVM. It writes the archive after the run has ended,
# still holding the pipe: `cat` waits for it.
sync_demo() {
    echo "spark.driver.defaultJavaOptions $1" >"$work/spark-defaults.conf"
    { "$bin/dagster" asset materialize -m elt_assets.definitions --select group:shop 2>&1 ||
        touch "$work/failed"; } | cat >"$work/log"
    if [ -e "$work/failed" ]; then
        cat "$work/log" >&2
        exit 1
    fi
}

# Without the optimising compiler, which would take most of the time; the archive holds no compiled code.
sync_demo "\"-XX:ArchiveClassesAtExit=$work/classes.jsa\" -XX:TieredStopAtLevel=1"
sync_demo "\"-XX:SharedArchiveFile=$work/classes.jsa\" -Xshare:auto -XX:+VerifySharedSpaces -XX:TieredStopAtLevel=1"
"$bin/python" -c "import pathlib, sys, $module as m; print('made', m.keep(pathlib.Path(sys.argv[1])))" \
    "$work/classes.jsa"
