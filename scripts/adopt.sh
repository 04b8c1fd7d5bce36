#!/bin/sh
# Makes a clone of acklast yours: under your own module path and, if you like, with your own default stack.
#
# usage: scripts/adopt.sh MODULE [STACK]     renames, and commits the result
#        scripts/adopt.sh upgrade TAG        renames a later version the same way, and merges it
#
# It renames the import paths, the module paths in every go.mod, and the default stack. The package, the
# binary, the message attribute, the metric namespace and the prefix of settings keep the name acklast,
# because messages, alarms and scripts rely on it.
#
# The branch "upstream" holds each version of acklast, renamed, without your changes. An upgrade merges that
# branch, so that the merge contains only acklast's own changes. Nothing is fetched or pushed.
#
# The tags of acklast are kept as refs/acklast/TAG, which no git push --tags publishes: their go.mod names
# another module path, so nobody could get such a version of your module. docs/upgrade.md says more.
set -eu
cd "$(dirname "$0")/.."

branch=upstream
versions=refs/acklast
stack_file=internal/topology/topology.go
scratch=

fail() {
	printf 'adopt: %s\n' "$@" >&2
	exit 1
}

usage() {
	sed -n 's/^# usage: \(.*\)/usage: \1/p; s/^#        \(scripts.*\)/       \1/p' scripts/adopt.sh >&2
	exit 2
}

# module prints the module path of the tree at $1.
module() { awk '$1 == "module" { gsub(/"/, "", $2); print $2; exit }' "$1/go.mod"; }

# stack prints the default stack of the tree at $1.
stack() { sed -n 's/^const DefaultStack = "\(.*\)"$/\1/p' "$1/$stack_file"; }

# rewrite replaces a file by the output of an awk program. The file keeps its mode.
rewrite() {
	file=$1
	shift
	awk "$@" "$file" >"$scratch/rewritten"
	cmp -s "$scratch/rewritten" "$file" || cat "$scratch/rewritten" >"$file"
}

# rename TREE MODULE STACK renames the tree.
rename() {
	tree=$1 to=$2 named=$3
	from=$(module "$tree")
	was=$(stack "$tree")
	[ -n "$from" ] || fail "$tree/go.mod names no module"
	[ -n "$was" ] || fail "$tree/$stack_file has no DefaultStack"
	git -C "$tree" ls-files >"$scratch/files"
	while read -r name; do
		[ -f "$tree/$name" ] || continue
		case "$name" in
		*.go) # only import paths: those between "import (" and ")", and those behind "import"
			rewrite "$tree/$name" -v from="$from" -v to="$to" '
				function renamed(line,   at) {
					if ((at = index(line, "\"" from "\"")) || (at = index(line, "\"" from "/")))
						return substr(line, 1, at) to substr(line, at + 1 + length(from))
					return line
				}
				/^import \(/ { inside = 1 }
				inside && /^\)/ { inside = 0 }
				inside || /^import / { $0 = renamed($0) }
				{ print }'
			;;
		go.mod | */go.mod) # the words module, require and replace are followed by paths
			rewrite "$tree/$name" -v from="$from" -v to="$to" '
				{
					for (i = 1; i <= NF; i++) if ($i == from) {
						at = match($0, "(^|[ \t])" from "([ \t]|$)")
						if (at > 1 || substr($0, 1, 1) ~ /[ \t]/) at++
						$0 = substr($0, 1, at - 1) to substr($0, at + length(from))
						break
					}
					print
				}'
			;;
		esac
	done <"$scratch/files"
	rewrite "$tree/$stack_file" -v was="$was" -v named="$named" '
		$0 == "const DefaultStack = \"" was "\"" { $0 = "const DefaultStack = \"" named "\"" }
		{ print }'
	# Import paths are sorted, and a renamed path may belong to another place.
	(cd "$tree" && git ls-files '*.go' | while read -r name; do [ ! -f "$name" ] || echo "$name"; done | xargs gofmt -w)
}

valid() {
	case "$1" in
	*[!A-Za-z0-9./_~-]* | /* | */ | .* | "") fail "$1 is not a module path such as github.com/you/jobs" ;;
	esac
	case "$2" in
	*[!A-Za-z0-9-]* | [!A-Za-z]* | "") fail "$2 is not a stack's name: letters, digits and hyphens, a letter first" ;;
	esac
}

clean() {
	[ "$(git rev-parse --show-toplevel)" = "$(pwd -P)" ] || fail "$(pwd -P) is not the top of a git repository: clone acklast first"
	[ -z "$(git status --porcelain)" ] || fail "there are uncommitted changes: commit or stash them first"
}

adopt() {
	to=$1 named=${2:-$(stack .)}
	valid "$to" "$named"
	clean
	! git rev-parse -q --verify "refs/heads/$branch" >/dev/null || fail \
		"this clone has a branch $branch already, so it is adopted: see docs/upgrade.md for later versions" \
		"if it is another one, give it another name: git branch -m $branch NAME"
	rename . "$to" "$named"
	[ -n "$(git status --porcelain)" ] || fail "this clone is $to with the default stack $named already"
	git commit -qam "Adopt acklast as $to"
	git branch "$branch"
	# Until now, every tag of this clone is acklast's.
	git for-each-ref --format="create $versions/%(refname:lstrip=2) %(objectname)%0adelete %(refname)" refs/tags | git update-ref --stdin
	echo "This is $to now, with the default stack $named, in one commit."
	echo "The branch $branch marks it for upgrades: push it too. Next: make demo"
}

upgrade() {
	tag=$1
	clean
	git rev-parse -q --verify "refs/heads/$branch" >/dev/null || fail \
		"this clone has no branch $branch: adopt it first, or bring the branch from where you pushed it" \
		"git fetch origin $branch:$branch"
	version=$(git rev-parse -q --verify "$versions/$tag^{commit}") || fail \
		"there is no version $tag of acklast here: fetch its tags first, into a place of their own" \
		"git fetch --no-tags ADDRESS-OF-ACKLAST 'refs/tags/*:$versions/*'"

	# Use another working tree, so that your own one stays unchanged until the merge.
	tree=$scratch/tree
	git worktree add -q --detach "$tree" "$branch"
	to=$(module "$tree")
	named=$(stack "$tree")
	git -C "$tree" read-tree -u --reset "$version"
	rename "$tree" "$to" "$named"
	git -C "$tree" add -A
	# Repeating a version makes no second commit, so there is nothing to merge.
	written=$(git -C "$tree" write-tree)
	snapshot=$branch
	[ "$written" = "$(git rev-parse "$branch^{tree}")" ] ||
		snapshot=$(git -C "$tree" commit-tree "$written" -p "$branch" -p "$version" -m "acklast $tag as $to")
	git worktree remove --force "$tree"
	base=$(git merge-base HEAD "$branch") || fail "the current branch has nothing in common with $branch"
	git update-ref -m "upgrade to $tag" "refs/heads/$branch" "$(git rev-parse "$snapshot")"

	# Do not detect renames: a kind of yours that began as a copy of a sample is not a renamed sample.
	# Before git 2.50 the default strategy ignores this setting, and "recursive" obeys it. Since 2.50
	# "recursive" is another name of the default strategy, which obeys too.
	git merge -q -s recursive -X no-renames --no-ff --no-commit "$branch" >"$scratch/merge" 2>&1 || true
	# A merge that is under way has a MERGE_HEAD, also if it has conflicts.
	if ! git rev-parse -q --verify MERGE_HEAD >/dev/null; then
		git merge-base --is-ancestor "$branch" HEAD || fail "git did not merge $tag, and your branch is unchanged:" \
			"$(cat "$scratch/merge")" "remove the cause, then: scripts/adopt.sh upgrade $tag"
		echo "Nothing to merge: this branch has $tag already."
		return
	fi
	# Keep your deletions: of files that acklast changed, and of new files anywhere below a folder that you removed.
	git status --porcelain | sed -n 's/^DU //p' >"$scratch/deleted"
	for commit in "$base" HEAD; do git ls-tree -rd --name-only "$commit" | sort >"$scratch/folders-$commit"; done
	comm -23 "$scratch/folders-$base" "$scratch/folders-HEAD" >"$scratch/removed"
	git diff --no-renames --name-only --diff-filter=A "$base" "$branch" | awk -v removed="$scratch/removed" '
		BEGIN { while ((getline folder <removed) > 0) gone[folder "/"] }
		{
			for (i = 1; i <= length($0); i++) if (substr($0, i, 1) == "/" && substr($0, 1, i) in gone) {
				print
				break
			}
		}' >>"$scratch/deleted"
	sort -u "$scratch/deleted" | while read -r name; do
		git rm -qf --ignore-unmatch -- "$name" >/dev/null
		echo "stays deleted: $name"
	done
	if [ -n "$(git ls-files --unmerged)" ]; then
		git diff --name-only --diff-filter=U | sed 's/^/in conflict: /'
		echo "$tag is merged but for these files. Edit them, git add them, and git commit; or go back: git merge --abort"
		exit 1
	fi
	git commit -qm "Upgrade acklast to $tag"
	echo "$tag is merged. Read its part of CHANGELOG.md, then: make test"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; git worktree prune' EXIT
case "${1:-}" in
upgrade) [ $# -eq 2 ] || usage; upgrade "$2" ;;
"" | -*) usage ;;
*) [ $# -le 2 ] || usage; adopt "$@" ;;
esac
