import { readdirSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import t, { type Test } from 'tap'
import { type RunCommand, runCommand } from '../../../kernel/run-command.ts'
import { throughKeyPipe } from '../../../kernel/wireguard/wg-command.ts'

const KEY = 'a key\n'

function keyFolder(t: Test): { readonly folder: string; readonly file: string } {
  const folder = t.testdir({ key: KEY })
  return { folder, file: join(folder, 'key') }
}

/** Does what `wg` does: reads the file to its end. Returns what it has read. */
function reads(path: string, signal: AbortSignal): Promise<string> {
  return runCommand('cat', [path], { signal }).then(({ code, stdout }) => `${code} ${stdout}`)
}

t.test('the tool waits for the key, and nothing is left', async (t) => {
  const { folder, file } = keyFolder(t)
  const [said, waiting] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()]
  let hasEnded = false
  const running = throughKeyPipe(
    runCommand,
    { file, after: said.promise, onWaiting: () => waiting.resolve(undefined) },
    reads,
  )
  running.then(
    () => {
      hasEnded = true
    },
    () => undefined,
  )
  await waiting.promise
  const [pipe = ''] = readdirSync(folder).filter((name) => name !== basename(file))
  t.equal(statSync(join(folder, pipe)).mode & 0o777, 0o600)
  t.ok(statSync(join(folder, pipe)).isFIFO())
  t.notOk(hasEnded)
  said.resolve(undefined)
  t.equal(await running, `0 ${KEY}`)
  t.strictSame(readdirSync(folder), ['key'])
})

t.test('it is not to have it after all: the tool is stopped', async (t) => {
  const { folder, file } = keyFolder(t)
  const [said, waiting] = [Promise.withResolvers<undefined>(), Promise.withResolvers<undefined>()]
  const onWaiting = (): void => waiting.resolve(undefined)
  let stopped: Promise<unknown> = Promise.resolve()
  const running = throughKeyPipe(runCommand, { file, after: said.promise, onWaiting }, (path, signal) => {
    const reading = reads(path, signal)
    stopped = reading.catch((error: unknown) => error)
    return reading
  })
  await waiting.promise
  said.reject(new Error('not now'))
  await t.rejects(running, /not now/)
  t.match(await stopped, { code: 'EINTR' })
  t.strictSame(readdirSync(folder), ['key'])
})

t.test('the tool ends before it has opened the pipe', async (t) => {
  const { folder, file } = keyFolder(t)
  const never = new Promise(() => undefined)
  const onWaiting = (): void => void t.fail('it does not wait')
  const init = { file, after: never, onWaiting }
  await t.rejects(
    throughKeyPipe(runCommand, init, () => Promise.reject(new Error('no device'))),
    /no device/,
  )
  t.equal(await throughKeyPipe(runCommand, init, () => Promise.resolve('ended')), 'ended')
  t.strictSame(readdirSync(folder), ['key'])
})

t.test('the tool ends while it waits', async (t) => {
  const { folder, file } = keyFolder(t)
  const said = Promise.withResolvers<undefined>()
  const start = (path: string, signal: AbortSignal): Promise<string> =>
    runCommand('sh', ['-c', 'exec < "$1"; exit 3', 'sh', path], { signal }).then(({ code }) => String(code))
  t.equal(await throughKeyPipe(runCommand, { file, after: said.promise, onWaiting: () => undefined }, start), '3')
  t.strictSame(readdirSync(folder), ['key'])
})

t.test('where there can be no pipe, the file itself is used, as late', async (t) => {
  const { folder, file } = keyFolder(t)
  const refusals: readonly RunCommand[] = [
    () => Promise.resolve({ code: 1, stdout: '', stderr: 'mkfifo: Operation not permitted' }),
    () => Promise.reject(new Error('no mkfifo')),
  ]
  for (const run of refusals) {
    const order: string[] = []
    const after = new Promise<undefined>((resolve) =>
      setImmediate(() => {
        order.push('after')
        resolve(undefined)
      }),
    )
    const init = { file, after, onWaiting: () => order.push('waiting') }
    const result = await throughKeyPipe(run, init, (path, signal) => {
      order.push(basename(path))
      return reads(path, signal)
    })
    t.equal(result, `0 ${KEY}`)
    t.strictSame(order, ['waiting', 'after', 'key'])
  }
  t.strictSame(readdirSync(folder), ['key'])
})
