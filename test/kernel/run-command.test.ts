import t from 'tap'
import { runCommand } from '../../kernel/run-command.ts'
import { failure } from '../support/failure.ts'

t.test('gives status and both outputs, and feeds standard input', async (t) => {
  t.same(await runCommand('sh', ['-c', 'cat; echo no >&2; exit 3'], { input: 'yes' }), {
    code: 3,
    stdout: 'yes',
    stderr: 'no\n',
  })
})

t.test('standard input that nobody reads', async (t) => {
  t.match(await runCommand('true', [], { input: 'x'.repeat(1 << 20) }), { code: 0 })
})

t.test('a missing tool is named with its package', async (t) => {
  const error = await failure(runCommand('sealane-no-such-tool', ['-x']))
  t.match(error, { code: 'MISSING_TOOL' })
  t.equal(
    error.message,
    'sealane-no-such-tool -x: sealane-no-such-tool is not installed: apt-get install sealane-no-such-tool',
  )
})

t.test('a deadline ends it', async (t) => {
  await t.rejects(runCommand('sleep', ['60'], { timeoutMs: 50 }), {
    code: 'TIMEOUT',
    message: 'sleep 60: still running after 50 ms',
  })
})

t.test('an abort ends it', async (t) => {
  const stop = new AbortController()
  const run = runCommand('sleep', ['60'], { signal: stop.signal })
  stop.abort()
  await t.rejects(run, { code: 'EINTR' })
  await t.rejects(runCommand('true', [], { signal: stop.signal }), { code: 'EINTR' })
})

t.test('nothing of our environment is handed on but the path', async (t) => {
  process.env['SEALANE_SECRET'] = 'x'
  t.teardown(() => delete process.env['SEALANE_SECRET'])
  // tap passes its own variables to every process, and the commands must not get ours.
  const { stdout } = await runCommand('env', [])
  t.notMatch(stdout, /SEALANE_SECRET|^HOME=/m)
  t.match(stdout, /^LC_ALL=C$/m)
})
