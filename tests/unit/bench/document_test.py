# document_test.py - bench/document writes tables from a result, sees tables that were changed, and figures in no table
# see: bench/document
# SPDX-License-Identifier: MIT
# usage: document_test.py SOURCE
import json, os, shutil, subprocess, sys, tempfile

SOURCE = sys.argv[1]
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fixture

failed = 0


def check(sentence, good, why=""):
    global failed
    print(f"{'ok' if good else 'not ok'} {sentence}" + ("" if good else f": {why}"))
    failed += not good


def document(root, *args):
    p = subprocess.run([os.path.join(root, "bench", "document"), *args], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return p.returncode, p.stdout + p.stderr


def text_of(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def write(text, *path):
    with open(os.path.join(*path), "w", encoding="utf-8") as f:
        f.write(text)


with tempfile.TemporaryDirectory(prefix="verbena-document-") as root:
    os.makedirs(os.path.join(root, "docs"))
    shutil.copytree(os.path.join(SOURCE, "bench"), os.path.join(root, "bench"))
    shutil.copy(os.path.join(SOURCE, "README.md"), root)
    shutil.copy(os.path.join(SOURCE, "docs", "performance.md"), os.path.join(root, "docs"))
    check("the tables are those of the results", document(root, "--check")[0] == 0, document(root, "--check"))
    before = text_of(root, "docs", "performance.md")

    write(json.dumps(fixture.result()), root, "new.json")
    status, said = document(root, os.path.join(root, "new.json"))
    page = text_of(root, "docs", "performance.md")
    check("a new result is written into the documents", status == 0 and "| 1.25 µs | 2.5 µs | 0.91 | 0.87…0.96 |" in page and "6.1.0-test" in page, said)
    check("the chosen rows stand in README.md", "| 1.25 µs | 2.5 µs | 0.91 |" in text_of(root, "README.md") and "| not measured |" in text_of(root, "README.md"))
    check("what failed is not measured, in words", "| ib_read_bw | not measured |" in page)
    check("a hostile string makes no row, no tag and no code", "\n| new | row |" not in page and "<script" not in page and "<img" not in page)
    check("tables of another result are as before", before[before.index("## The same rows on"):] == page[page.index("## The same rows on"):])
    check("after that the check is content", document(root, "--check")[0] == 0)

    write(page.replace("| 0.91 |", "| 0.90 |", 1), root, "docs", "performance.md")
    status, said = document(root, "--check")
    check("a figure that was changed by hand is seen", status == 1 and "docs/performance.md:" in said and "bench/document writes it" in said, said)
    write(page + "\nIt reaches 99.9 GB/s.\n", root, "docs", "performance.md")
    status, said = document(root, "--check")
    check("a figure outside of the tables is seen", status == 1 and "99.9 GB/s" in said, said)
    for text, why in ((page.replace("<!-- end of figures -->", "", 1), "begins in a table"), (page.replace("same-host measured", "nowhere measured"), "no table"),
                      (page.replace("same-host measured", "same-host ../../etc"), "no name of a result"), (page.replace("same-host measured", "same-host absent"), "absent.json")):
        write(text, root, "docs", "performance.md")
        status, said = document(root, "--check")
        check(f"a page with a mistake is refused: {why}", status == 1 and why in said and "Traceback" not in said, said)
    write("{", root, "new.json")
    status, said = document(root, os.path.join(root, "new.json"))
    check("a file that is no result is refused, and nothing is written", status == 1 and "no JSON" in said and "{" != text_of(root, "bench", "results", "measured.json"), said)
sys.exit(1 if failed else 0)
