# Shared by the scripts that fetch and start engines and stores. Sourced, not run.
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${DPBEAM_CACHE:-$HOME/.cache/dpbeam}
. "$REPO/scripts/_engines/versions.sh"

if [ -z "${DPBEAM_PYTHON:-}" ]; then
  if [ -x "$REPO/.venv/bin/python" ]; then DPBEAM_PYTHON=$REPO/.venv/bin/python; else DPBEAM_PYTHON=python3; fi
fi
export DPBEAM_PYTHON

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
need() { command -v "$1" >/dev/null 2>&1 || die "$1 is not on the PATH; install $2"; }

# The Java that runs the engines: JAVA_HOME if set, else the one on the PATH.
java_command() {
  if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then echo "$JAVA_HOME/bin/java"; else
    need java "a Java 17 runtime"
    command -v java
  fi
}

# with_lock NAME COMMAND...: one fetch at a time, however many tests and scripts ask.
with_lock() {
  local name=$1
  shift
  mkdir -p "$CACHE"
  (
    flock 9
    "$@"
  ) 9>"$CACHE/.$name.lock"
}

# fresh_folder PATH: a scratch folder next to PATH, so that a finished fetch can be renamed into place.
fresh_folder() {
  mkdir -p "$(dirname "$1")"
  mktemp -d "$1.part-XXXXXX"
}

# --- processes -------------------------------------------------------------------------------------------------

# start NAME COMMAND...: run in its own session, output to $LOGS/NAME.out, id kept in $RUN/NAME.pid.
start() {
  local name=$1
  shift
  if alive "$name"; then return; fi
  # Lock files and the caller's pipes must not be inherited: a caller that waits for end of file would wait for ever.
  setsid "$@" >"$LOGS/$name.out" 2>&1 </dev/null 9>&- &
  echo "$! $(start_time $!)" >"$RUN/$name.pid"
}

# A process is known by its id and its start time, so that a reused id is never taken for ours.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20 || true; }

alive() {
  local id began
  [ -f "$RUN/$1.pid" ] || return 1
  read -r id began <"$RUN/$1.pid" || return 1
  [ -n "$began" ] && [ "$(start_time "$id")" = "$began" ] && [ "$(process_state "$id")" != Z ]
}

process_state() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f1 || true; }

process_id() { cut -d' ' -f1 "$RUN/$1.pid"; }

# stop NAME: SIGTERM, and SIGKILL after 15 seconds.
stop() {
  local name=$1 id i
  if alive "$name"; then
    id=$(process_id "$name")
    kill "$id" 2>/dev/null || true
    for i in $(seq 150); do
      alive "$name" || break
      sleep 0.1
    done
    if alive "$name"; then kill -KILL "$id" 2>/dev/null || true; fi
  fi
  rm -f "$RUN/$name.pid"
}

# listening PORT [HOST]
listening() { (exec 3<>"/dev/tcp/${2:-127.0.0.1}/$1") 2>/dev/null; }

# free_or_die PORT VARIABLE [HOST]
free_or_die() { if listening "$1" "${3:-}"; then die "port $1 is taken by another program; set $2 to a free port"; fi; }

# json URL EXPRESSION: evaluate a Python expression over the answer `d`; fails if there is no answer.
json() {
  "$DPBEAM_PYTHON" -c 'import json, sys, urllib.request
d = json.load(urllib.request.urlopen(sys.argv[1], timeout=5))
print(eval(sys.argv[2], {"d": d}))' "$1" "$2" 2>/dev/null
}

# wait_for SECONDS WHAT COMMAND...: poll until the command succeeds; so many seconds times PATIENCE, if that is set.
wait_for() {
  local seconds=$(($1 * ${PATIENCE:-1})) what=$2 end
  shift 2
  end=$((SECONDS + seconds))
  until "$@"; do
    if [ $SECONDS -ge $end ]; then
      tail -n 20 "$LOGS"/*.out >&2 || true
      die "$what did not come up within $seconds seconds; see $LOGS"
    fi
    sleep 0.3
  done
}

# --- programs in Go -------------------------------------------------------------------------------------------

# go_build BINARY MODULE@VERSION WHAT: build a program from its Go module into the cache.
go_build() {
  [ -x "$1" ] && return
  need go "Go 1.24 or later"
  local folder
  folder=$(fresh_folder "$1")
  say "building $3 (two to five minutes, once)"
  GOBIN=$folder GOFLAGS=-buildvcs=false go install -ldflags="-s -w" "$2" >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    die "Go could not build $3; is the Go module proxy reachable?"
  }
  mv "$folder/$(basename "$1")" "$1"
  rm -rf "$folder"
}

# --- job servers ----------------------------------------------------------------------------------------------

dependency() {
  printf '<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n' "$@"
}

# build_job_server JAR MAIN_CLASS DEPENDENCIES: one self-contained jar, as Beam's own job servers are, put together
# by Maven from Beam's runner libraries.
build_job_server() {
  local jar=$1 main=$2 dependencies=$3 folder
  need mvn Maven
  folder=$(fresh_folder "$jar")
  trap 'rm -rf "$folder"' EXIT
  cat >"$folder/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dpbeam</groupId><artifactId>job-server</artifactId><version>$RUNNER_VERSION</version>
  <packaging>jar</packaging>
  <properties><project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>
  <dependencyManagement><dependencies>
    $(dependency org.apache.beam beam-runners-java-job-service "$JOB_SERVICE_VERSION")
  </dependencies></dependencyManagement>
  <dependencies>
    $dependencies
  </dependencies>
  <build><finalName>job-server</finalName><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-shade-plugin</artifactId>
    <version>$SHADE_PLUGIN_VERSION</version>
    <executions><execution><phase>package</phase><goals><goal>shade</goal></goals><configuration>
      <createDependencyReducedPom>false</createDependencyReducedPom>
      <filters><filter><artifact>*:*</artifact><excludes>
        <exclude>META-INF/*.SF</exclude><exclude>META-INF/*.DSA</exclude><exclude>META-INF/*.RSA</exclude>
        <exclude>module-info.class</exclude><exclude>META-INF/versions/*/module-info.class</exclude>
      </excludes></filter></filters>
      <transformers>
        <transformer implementation="org.apache.maven.plugins.shade.resource.ServicesResourceTransformer"/>
        <transformer implementation="org.apache.maven.plugins.shade.resource.AppendingTransformer">
          <resource>reference.conf</resource></transformer>
        <transformer implementation="org.apache.maven.plugins.shade.resource.ManifestResourceTransformer">
          <mainClass>$main</mainClass>
          <manifestEntries><Multi-Release>true</Multi-Release></manifestEntries></transformer>
      </transformers>
    </configuration></execution></executions>
  </plugin></plugins></build>
</project>
POM
  say "building $(basename "$jar") (one to three minutes, once)"
  mvn -B -q -f "$folder/pom.xml" package >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    die "Maven could not build $(basename "$jar"); is Maven Central reachable?"
  }
  mv "$folder/target/job-server.jar" "$jar"
  rm -rf "$folder"
  trap - EXIT
}

# pip_fetch PACKAGE==VERSION FOLDER: unpack a distribution from PyPI without its dependencies.
pip_fetch() {
  "$DPBEAM_PYTHON" -m pip install -q --no-deps --no-compile --disable-pip-version-check --root-user-action=ignore \
    --target "$2" "$1" || die "pip could not fetch $1; is PyPI reachable?"
}

# fetch_environment NAME VERSION PACKAGE...: a Python environment of its own, $CACHE/NAME-VERSION, with the releases that
# scripts/_engines/NAME.txt pins. The caller marks it with `.complete`.
fetch_environment() {
  local name=$1 version=$2 home=$CACHE/$1-$2
  shift 2
  [ -e "$home/.complete" ] && return
  say "installing ${name^} $version"
  rm -rf "$home"
  mkdir -p "$CACHE"
  "$DPBEAM_PYTHON" -m venv "$home" || die "cannot make a virtual environment; on Debian: apt-get install python3-venv"
  "$home/bin/python" -m pip install -q --no-compile --disable-pip-version-check \
    --constraint "$REPO/scripts/_engines/$name.txt" "$@" || die "pip could not install ${name^}; is PyPI reachable?"
}

# fetch_jars FOLDER WHAT DEPENDENCIES [MANAGEMENT]: jars and all that they need at run time, from Maven into the cache.
fetch_jars() {
  [ -d "$1" ] && return
  need mvn Maven
  local folder
  folder=$(fresh_folder "$1")
  cat >"$folder/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dpbeam</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencyManagement><dependencies>${4:-}</dependencies></dependencyManagement>
  <dependencies>$3</dependencies>
</project>
POM
  say "fetching $2"
  mvn -B -q -f "$folder/pom.xml" "org.apache.maven.plugins:maven-dependency-plugin:$DEPENDENCY_PLUGIN_VERSION:copy-dependencies" \
    -DoutputDirectory="$folder/home" -DincludeScope=runtime >"$folder/log" 2>&1 || {
    tail -n 20 "$folder/log" >&2
    die "Maven could not fetch $2; is Maven Central reachable?"
  }
  mv "$folder/home" "$1"
  rm -rf "$folder"
}

# --- Hadoop ---------------------------------------------------------------------------------------------------

hadoop_project() {
  echo "<dependency>
    <groupId>org.apache.hadoop</groupId><artifactId>hadoop-project</artifactId><version>$HADOOP_VERSION</version>
    <type>pom</type><scope>import</scope>
  </dependency>"
}

# property NAME VALUE ...: of a Hadoop configuration.
property() { printf '  <property><name>%s</name><value>%s</value></property>\n' "$@"; }

log4j() {
  cat <<'CONF'
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss,SSS} %-5p %c{1} - %m%n
CONF
}

# hadoop_command MEMORY CLASS ARGUMENTS...: into COMMAND; of the jars in HOME_DIR, with what is in CONF.
hadoop_command() {
  local memory=$1 module
  shift
  COMMAND=("$(java_command)" "-Xmx$memory" -Djava.io.tmpdir="$RUN/tmp" -Djava.net.preferIPv4Stack=true)
  for module in java.base/java.lang java.base/java.util java.base/java.net java.base/java.nio; do
    COMMAND+=("--add-opens=$module=ALL-UNNAMED")
  done
  COMMAND+=(-cp "$CONF:$HOME_DIR/*" "$@")
}
