import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import type { Client } from "counterd";

/** The package's folder, from build/test. */
export const packageFolder = resolve(fileURLToPath(import.meta.url), "../../..");
const root = resolve(packageFolder, "../..");
export const rules = join(packageFolder, "../testdata/rules.yaml");

/** Returns a folder that is removed after the tests of the file. */
export function temporaryFolder(parent = tmpdir()): string {
  const folder = mkdtempSync(join(parent, "counterd-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

let built = false;

/** Returns the path of the working tree's counterd. */
function counterd(): string {
  const binary = join(packageFolder, "build/counterd");
  if (!built) {
    execFileSync("go", ["build", "-o", binary, "./cmd/counterd"], { cwd: root, stdio: "inherit" });
    built = true;
  }
  return binary;
}

export interface Counterd {
  url: string;
  process: ChildProcess;
  stop: () => Promise<void>;
}

/** Starts a counterd, by default with the rules of the tests, in memory, on a free port. */
export async function startCounterd(
  args: string[] = [],
  options: { file?: string; listen?: string } = {},
): Promise<Counterd> {
  const { file = rules, listen = "127.0.0.1:0" } = options;
  const child = spawn(counterd(), ["-rules", file, "-listen", listen, ...args], {
    env: { ...process.env, COUNTERD_TIMEOUT: "1s" }, // the machine may be busy
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await ended;
  };
  after(stop);
  let log = "";
  for await (const line of createInterface({ input: child.stderr })) {
    log += `${line}\n`;
    const address = /msg=serving address=(\S+)/.exec(line)?.[1];
    if (address !== undefined) {
      child.stderr.resume();
      return { url: `http://${address}`, process: child, stop };
    }
  }
  throw new Error(`counterd does not serve:\n${log}`);
}

/** Serves by a handler of the test's own. */
export async function startFake(handler: RequestListener): Promise<string> {
  const server = createServer(handler);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

export interface Seen {
  path: string;
  body: string;
}

async function readAll(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) {
    text += String(chunk);
  }
  return text;
}

/** Passes requests on to a server, keeps them, and holds each until the gate lets it pass. */
export async function startRelay(url: string, gate: () => Promise<void> = async () => undefined) {
  const seen: Seen[] = [];
  const pass = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body = await readAll(request);
    seen.push({ path: request.url ?? "", body });
    await gate();
    const init: RequestInit = { method: request.method ?? "GET", headers: { "Content-Type": "application/json" } };
    if (body !== "") {
      init.body = body;
    }
    const answer = await fetch(`${url}${request.url}`, init);
    response.writeHead(answer.status, { "Content-Type": answer.headers.get("Content-Type") ?? "" });
    response.end(await answer.text());
  };
  return { url: await startFake((request, response) => void pass(request, response)), seen };
}

/** A gate that is closed until it is opened. */
export function closedGate() {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { open: () => open(), passed: () => opened };
}

/** Waits until so many hits of the client wait for their turns. */
export async function untilWaiting(client: Client, n: number): Promise<void> {
  await until(() => (client as unknown as { waiting: Set<object> }).waiting.size === n);
}

/** Waits until the condition holds. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
