"""The package as its users have it, and its README, word for word."""

from __future__ import annotations

import ast
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
import urllib.request
import zipfile

from .support import PACKAGE, ROOT, Counterd

README = (PACKAGE / "README.md").read_text()
DOCUMENTED = "http://127.0.0.1:8080"

SERVE_ONCE = """
import asyncio

sent = []


async def send(message):
    sent.append(message)


asyncio.run(app({"type": "http", "client": ("203.0.113.7", 4711)}, None, send))
print(dict(sent[0]["headers"])[b"ratelimit"].decode(), sent[1]["body"].decode())
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", README)


class TestPackage(unittest.TestCase):
    folder: pathlib.Path

    @classmethod
    def setUpClass(cls) -> None:
        """Builds the package, and unpacks it where nothing else is, as an installation does."""
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        source = cls.folder / "source"
        shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        build = "from setuptools import build_meta; build_meta.build_sdist('..'); build_meta.build_wheel('..')"
        done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"apt-get install python3-setuptools python3-wheel\n{done.stderr}")
        shutil.rmtree(source)
        [wheel] = cls.folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(cls.folder)

    def write(self, name: str, text: str, url: str) -> str:
        self.assertIn(DOCUMENTED, text)
        (self.folder / name).write_text(text.replace(DOCUMENTED, url))
        return name

    def run_python(self, name: str) -> str:
        command = [sys.executable, name]
        return subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.PIPE, text=True).stdout

    def test_the_first_ten_lines(self) -> None:
        rules = self.folder / "rules.yaml"
        rules.write_text(blocks("yaml")[0])
        first = blocks("python")[0]
        self.assertLessEqual(len(first.splitlines()), 10)
        command, output = blocks("console")[0].split("\n", 1)
        with Counterd(rules=rules) as server:
            self.assertEqual(command, f"$ python3 {self.write('first.py', first, server.url)}")
            self.assertEqual(self.run_python("first.py"), output)

    def test_the_other_code_of_the_readme(self) -> None:
        _, calls, loop, wsgi, asgi = blocks("python")
        # A busy machine may take longer than a user waits.
        calls = calls.replace("timeout=2.0", "timeout=60.0").replace("timeout=0.5", "timeout=60.0")
        with Counterd() as server:
            self.assertEqual(self.run_python(self.write("calls.py", calls, server.url)), "True\nTrue\n")
            self.assertEqual(self.run_python(self.write("loop.py", loop, server.url)), "100\n")

            self.assertIn("3000, app).serve_forever()", wsgi)
            wsgi = wsgi.replace("make_server(", "server = make_server(").replace("3000, app).serve_forever()", "0, app)")
            wsgi += "print(server.server_port, flush=True)\nserver.handle_request()\n"
            command = [sys.executable, self.write("wsgi.py", wsgi, server.url)]
            with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as app:
                assert app.stdout is not None
                with urllib.request.urlopen(f"http://127.0.0.1:{app.stdout.readline().strip()}") as response:
                    self.assertEqual(response.read(), b"hello")
                    self.assertEqual(response.headers["RateLimit"], '"ip-100000-per-1h";r=99999')

            asgi += SERVE_ONCE
            self.assertEqual(self.run_python(self.write("asgi.py", asgi, server.url)), '"ip-100000-per-1h";r=99999 hello\n')

    def test_it_imports_the_standard_library_alone(self) -> None:
        modules = list((PACKAGE / "counterd").glob("*.py"))
        self.assertGreater(len(modules), 5)
        for module in modules:
            for node in ast.walk(ast.parse(module.read_text())):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                for name in names:
                    self.assertIn(name.split(".")[0], sys.stdlib_module_names, module)

    def test_metadata(self) -> None:
        names = {str(file.relative_to(self.folder)) for file in self.folder.glob("counterd*") if file.is_file()}
        project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
        version = re.sub(r"-(a|b|rc)[a-z]*\.", r"\1", project["version"])  # as PyPI writes prereleases
        self.assertEqual(names, {f"counterd-{version}.tar.gz", f"counterd-{version}-py3-none-any.whl"})
        for name in ("counterd/py.typed", f"counterd-{version}.dist-info/LICENSE", f"counterd-{version}.dist-info/METADATA"):
            self.assertTrue((self.folder / name).exists(), name)
        self.assertEqual(project["name"], "counterd")
        self.assertEqual(project["dependencies"], [])
        self.assertEqual(blocks("sh"), ["pip install counterd\n"])
        self.assertEqual((PACKAGE / "LICENSE").read_text(), (ROOT / "LICENSE").read_text())


if __name__ == "__main__":
    unittest.main()
