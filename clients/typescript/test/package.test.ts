import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, describe, test } from "node:test";
import { startCounterd, packageFolder, temporaryFolder } from "./support.js";

const readme = readFileSync(join(packageFolder, "README.md"), "utf8");
const blocks = (language: string): string[] =>
  [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, "gms"))].map(([, text]) => text as string);
const documented = "http://127.0.0.1:8080";

const run = (program: string, args: string[], cwd: string): string =>
  execFileSync(program, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });

/** A folder in which the package is installed as its users have it. Express is found in a folder above. */
const folder = (() => {
  const build = join(packageFolder, "build");
  const user = temporaryFolder(build);
  const [archive] = JSON.parse(
    run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", user], packageFolder),
  );
  writeFileSync(join(user, "package.json"), '{"private": true, "type": "module"}');
  assert.deepEqual(blocks("sh"), ["npm install counterd\n"]);
  run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(user, archive.filename)], user);
  return user;
})();

/** Writes a file of the README, which calls the server at that URL. */
function write(name: string, text = "", url: string): string {
  assert.ok(text.includes(documented), `a block of the README is missing: ${name}`);
  writeFileSync(join(folder, name), text.replaceAll(documented, url));
  return name;
}

describe("the README, word for word", () => {
  const [first, calls, expressApp, handler] = blocks("ts");

  test("its first ten lines", async () => {
    const [rulesFile] = blocks("yaml");
    writeFileSync(join(folder, "rules.yaml"), rulesFile as string);
    const { url } = await startCounterd([], { file: join(folder, "rules.yaml") });
    const [shown] = blocks("console");
    const [command, ...output] = (shown as string).trimEnd().split("\n");
    assert.equal(command, `$ node ${write("first.mjs", first, url)}`);
    assert.equal(run("node", ["first.mjs"], folder), `${output.join("\n")}\n`);
    assert.ok((first as string).trimEnd().split("\n").length <= 10);
  });

  test("its other code compiles with strict types, and runs", async () => {
    const { url, stop } = await startCounterd();
    // A busy machine may take longer than a user waits.
    write("calls.ts", calls?.replace("2_000", "60_000").replace("500, signal", "60_000, signal").replace("timeout(400)", "timeout(60_000)"), url);
    write(
      "app.ts",
      expressApp?.replace(
        "listen(3000)",
        'listen(0, "127.0.0.1", function (this: any) { console.log(this.address().port); })',
      ),
      url,
    );
    write("handler.ts", handler, url);
    const tsconfig = {
      extends: join(packageFolder, "test/tsconfig.json"),
      compilerOptions: { rootDir: ".", outDir: ".", noUnusedLocals: false, noUnusedParameters: false },
      include: ["*.ts"],
      exclude: [],
    };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(tsconfig));
    run("node", [join(packageFolder, "node_modules/typescript/bin/tsc"), "-p", "."], folder);

    assert.equal(run("node", ["calls.js"], folder), "true\ntrue\n");

    let survives: () => Promise<string> = async () => "";
    const app = spawn("node", ["app.js"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
    after(() => app.kill());
    for await (const port of createInterface({ input: app.stdout })) {
      const response = await fetch(`http://127.0.0.1:${port}`);
      assert.deepEqual(
        [await response.text(), response.headers.get("RateLimit")],
        ["hello", '"ip-100000-per-1h";r=99999'],
      );
      survives = async () => (await fetch(`http://127.0.0.1:${port}`)).text();
      break;
    }

    const { default: worker } = await import(join(folder, "handler.js"));
    const response: Response = await worker.fetch(
      new Request("http://service.example", { headers: { "X-API-Key": "k" } }),
    );
    assert.deepEqual(
      [await response.text(), response.headers.get("RateLimit")],
      ["hello", '"key-100000-per-1h";r=99999'],
    );
    await stop();
    assert.equal(await survives(), "hello", "the service survives the death of its server");
    assert.equal(await survives(), "hello");
  });
});

test("the package holds its license and types, and needs neither Node nor another package", () => {
  const installed = join(folder, "node_modules/counterd");
  const files = readdirSync(installed, { recursive: true })
    .map(String)
    .filter((name) => name.includes("."));
  assert.deepEqual(files.filter((name) => !name.startsWith("dist/")).sort(), ["README.md", "package.json"]);
  assert.equal(
    readFileSync(join(installed, "LICENSE"), "utf8"),
    readFileSync(join(packageFolder, "../../LICENSE"), "utf8"),
  );
  const modules = files.filter((name) => name.endsWith(".js"));
  assert.ok(modules.length > 5 && files.includes("dist/index.d.ts"));
  for (const name of modules) {
    const text = readFileSync(join(installed, name), "utf8");
    for (const [, from] of text.matchAll(/\b(?:from|import|require)\s*\(?\s*["']([^"']+)["']/g)) {
      assert.ok(from?.startsWith("./") && from.endsWith(".js"), `${name} imports ${from}`);
    }
    assert.doesNotMatch(text, /\b(process|Buffer|require|__dirname)\b\s*[.(]/, name);
  }
  const manifest = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  assert.deepEqual([manifest.dependencies, manifest.license], [undefined, "Apache-2.0"]);
  const lock = readFileSync(join(packageFolder, "package-lock.json"), "utf8");
  assert.doesNotMatch(lock, /"resolved"/);
});
