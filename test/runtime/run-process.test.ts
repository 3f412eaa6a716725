import { spawn } from 'node:child_process'
import { EventEmitter, once } from 'node:events'
import t from 'tap'
import { RefusedError } from '../../protocol/broker-api.ts'
import { runProcess } from '../../runtime/run-process.ts'
import { UserError } from '../../runtime/errors.ts'

/** Runs with signals and outputs of its own; process.exitCode is restored afterwards. */
function start(build: (signal: AbortSignal) => Promise<void>) {
  const signals = new EventEmitter()
  const said: string[] = []
  const exits: number[] = []
  const before = process.exitCode
  const done = runProcess('sealane', build, {
    signals,
    complain: (text) => void said.push(text),
    exitNow: (code) => void exits.push(code),
  }).finally(() => (process.exitCode = before))
  return { signals, said, exits, done }
}

const untilStopped = (signal: AbortSignal): Promise<void> =>
  new Promise((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
  )

t.test('exit codes and what a person reads', async (t) => {
  class BrokerError extends Error {}
  const rows: { readonly error: unknown; readonly code: number; readonly says: string | RegExp }[] = [
    { error: new UserError('port taken'), code: 1, says: 'sealane: port taken\n' },
    {
      error: new UserError('no such flag', { exitCode: 2, hint: 'try --help' }),
      code: 2,
      says: 'sealane: no such flag\ntry --help\n',
    },
    { error: new BrokerError('broker says no'), code: 1, says: 'sealane: broker says no\n' },
    {
      error: new UserError('no', { hint: 'ask again', reason: 'TokenExpired' }),
      code: 1,
      says: 'sealane: no\nask again\nreason: TokenExpired\n',
    },
    {
      error: new UserError('wrapped', { cause: new RefusedError('NamespaceNotAllowed', 'namespace', 'not that') }),
      code: 1,
      says: 'sealane: wrapped\nreason: NamespaceNotAllowed\n',
    },
    { error: new UserError('seen elsewhere', { reason: 'LaneDown' }), code: 1, says: 'sealane: seen elsewhere\n' },
    { error: Object.assign(new BrokerError('no'), { reason: 'Whim' }), code: 1, says: 'sealane: no\n' },
    { error: 'text', code: 1, says: 'sealane: text\n' },
    {
      error: new TypeError('x is undefined'),
      code: 1,
      says: /^sealane: x is undefined\nThis is a bug in Sealane.*\nTypeError: x is undefined\n {4}at /,
    },
  ]
  for (const { error, code, says } of rows) {
    // eslint-disable-next-line @typescript-eslint/prefer-promise-reject-errors -- others do throw such things
    const run = start(() => Promise.reject(error))
    t.equal(await run.done, code)
    t.match(run.said.join(''), says)
    if (typeof says === 'string') t.equal(run.said.join(''), says)
  }
  const fine = start(() => Promise.resolve())
  t.equal(await fine.done, 0)
  t.same(fine.said, [])
})

t.test('a signal stops the run, which is no failure; a second one exits at once', async (t) => {
  const run = start(untilStopped)
  run.signals.emit('SIGTERM')
  run.signals.emit('SIGINT')
  t.equal(await run.done, 0)
  t.same(run.exits, [130])
  t.equal(run.signals.listenerCount('SIGTERM'), 0)

  const failing = start((signal) =>
    untilStopped(signal).catch(() => {
      throw new UserError('could not tidy up')
    }),
  )
  failing.signals.emit('SIGINT')
  t.equal(await failing.done, 1, 'a failure while stopping is one')
})

t.test('a closed terminal stops the run, however many signals it sends', async (t) => {
  const run = start(untilStopped)
  run.signals.emit('SIGHUP')
  run.signals.emit('SIGHUP')
  t.equal(await run.done, 0)
  t.same(run.exits, [])
  const server = start(untilStopped)
  const opened: string[] = []
  server.signals.on('SIGHUP', () => opened.push('logs'))
  server.signals.emit('SIGHUP')
  t.same(opened, ['logs'])
  server.signals.emit('SIGTERM')
  t.equal(await server.done, 0)
  t.same(server.exits, [], 'SIGHUP was for the server itself')
})

t.test('a real process ends with 0 on SIGTERM', async (t) => {
  const code = `
    import { runProcess } from ${JSON.stringify(new URL('../../runtime/run-process.ts', import.meta.url).href)}
    await runProcess('x', (signal) => new Promise((resolve) => {
      const timer = setInterval(() => {}, 1000)
      signal.addEventListener('abort', () => { clearInterval(timer); resolve() })
      console.log('ready')
    }))`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  child.kill('SIGTERM')
  const [exitCode] = (await once(child, 'exit')) as [number]
  t.equal(exitCode, 0)
})

t.test('a real process that does not come to its end ends with 130 on the second Ctrl-C', async (t) => {
  const code = `
    import { runProcess } from ${JSON.stringify(new URL('../../runtime/run-process.ts', import.meta.url).href)}
    await runProcess('x', (signal) => new Promise(() => {
      setInterval(() => {}, 1000)
      signal.addEventListener('abort', () => console.log('stopping'))
      console.log('ready')
    }))`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.teardown(() => child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  child.kill('SIGINT')
  t.equal(String((await once(child.stdout, 'data'))[0]), 'stopping\n')
  child.kill('SIGINT')
  t.same(await once(child, 'exit'), [130, null])
})
