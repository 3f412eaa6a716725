/** A program that this process runs: its end is reported correctly even while this process is blocked. */
import t from 'tap'
import { ProgramError, type ProgramInit, runProgram } from '../../runtime/run-program.ts'

const INIT: ProgramInit = { env: { PATH: process.env['PATH'] }, timeoutMs: 20_000, maxOutputBytes: 1000 }

/** Blocks this process for so long, from the next turn of the event loop on. */
function standStill(ms: number): void {
  setImmediate(() => {
    const until = performance.now() + ms
    while (performance.now() < until);
  })
}

async function saidBy(script: string, init: Partial<ProgramInit> = {}, path = 'sh'): Promise<string> {
  try {
    const { code, stdout, stderr } = await runProgram(path, ['-c', script], { ...INIT, ...init })
    return `${code} "${stdout.toString()}" "${stderr.toString()}"`
  } catch (error) {
    if (!(error instanceof ProgramError)) throw error
    return `${error.failure}: ${error.message}`
  }
}

t.test('how it ended', async (t) => {
  const stop = new AbortController()
  const rows: [script: string, init: Partial<ProgramInit>, want: string, path?: string][] = [
    ['cat; echo no >&2; exit 3', { input: 'yes' }, '3 "yes" "no\n"'],
    ['true', { input: 'x'.repeat(1 << 20) }, '0 "" ""'],
    ['exec sleep 60', { timeoutMs: 50 }, 'late: still running after 50 ms'],
    ['trap "" TERM; exec sleep 60', { timeoutMs: 50 }, 'late: still running after 50 ms'],
    // A background process keeps the program's output open.
    ['sleep 4 & echo begun; exit 0', { timeoutMs: 200 }, 'late: still running after 200 ms'],
    ['yes', {}, 'too much: it wrote more than 1000 bytes'],
    ['kill -9 $$', {}, 'ended: terminated by SIGKILL'],
    ['exec sleep 60', { signal: stop.signal }, 'aborted: stopped'],
    ['', { signal: AbortSignal.abort() }, 'aborted: stopped before it began'],
    ['', {}, 'not started: spawn /nowhere/at/all ENOENT', '/nowhere/at/all'],
    ['', {}, 'not started: spawn /etc/passwd EACCES', '/etc/passwd'],
  ]
  const all = rows.map(([script, init, , path]) => saidBy(script, init, path))
  stop.abort()
  for (const [i, said] of (await Promise.all(all)).entries()) t.equal(said, rows[i]?.[2], rows[i]?.[0] ?? '')
})

t.test('what ended well before its deadline is never lost, and never an empty success', async (t) => {
  const rows: [script: string, want: string][] = [
    ['sleep 0.1; echo hello', '0 "hello\n" ""'],
    ['sleep 0.1; echo refused >&2; exit 2', '2 "" "refused\n"'],
    ['exec sleep 20', 'late: still running after 250 ms'],
  ]
  for (const [script, want] of rows) {
    const said = saidBy(script, { timeoutMs: 250 })
    standStill(600)
    t.equal(await said, want, script)
  }
})

t.test('where file descriptors have run out, it was not started, and this process goes on', async (t) => {
  const script = `import { openSync } from 'node:fs'
import { runProgram } from ${JSON.stringify(import.meta.resolve('../../runtime/run-program.ts'))}
try { for (;;) openSync('/dev/null') } catch {}
const init = { env: {}, timeoutMs: 1000, maxOutputBytes: 10 }
await runProgram('/bin/true', [], init).catch((error) => process._rawDebug(error.failure, error.code))`
  const node = [process.execPath, '--disable-warning=ExperimentalWarning', '--input-type=module', '-e', script]
  const init = { ...INIT, env: process.env }
  const { code, stderr } = await runProgram('sh', ['-c', 'ulimit -n 64; exec "$@"', 'sh', ...node], init)
  t.same([code, stderr.toString()], [0, 'not started EMFILE\n'])
})
