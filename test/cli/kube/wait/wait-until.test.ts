/** Waiting for objects: the command prints each missing part once, ignores short changes, and ends at the timeout. */
import t from 'tap'
import { ClusterApiError } from '../../../../kubeapi/cluster-api.ts'
import { type Missing, waitUntil } from '../../../../cli/installation/wait-until.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'

/** Returns the output while the steps of a script follow each other every 250 ms. The last step stays. */
async function account(
  script: readonly (Missing | ClusterApiError | undefined)[],
  timeoutMs = 60_000,
): Promise<string> {
  const clock = new FakeClock()
  let said = ''
  let i = 0
  const look = (): Promise<Missing | undefined> => {
    const next = script[Math.min(i++, script.length - 1)]
    return next instanceof ClusterApiError ? Promise.reject(next) : Promise.resolve(next)
  }
  const signal = new AbortController().signal
  const say = (text: string): void => void (said += text)
  const over = new AbortController()
  const waiting = waitUntil(look, { what: 'parts', timeoutMs, clock, signal, say, hint: 'try again' })
    .catch((error: unknown) => void (said += `failed: ${(error as Error).message}\n`))
    .finally(() => over.abort())
  for (let n = 0; n < 1000 && !over.signal.aborted; n += 1) await clock.advance(250)
  await waiting
  return said
}

const times = (count: number, missing: Missing): Missing[] => Array.from({ length: count }, () => missing)
const GATEWAY = { what: 'gateway' }

t.test('what is waited for is told when it changes', async (t) => {
  t.equal(await account([undefined]), '')
  t.equal(
    await account([GATEWAY, GATEWAY, { what: 'dns' }, undefined]),
    'waiting for parts: gateway\nwaiting for parts: dns\n',
  )
})

t.test('how it stands is told when it lasts, and once', async (t) => {
  const pulling = { what: 'gateway', why: 'pulls its image' }
  t.equal(await account([...times(19, pulling), undefined]), 'waiting for parts: gateway\n', 'not at once')
  const lasts = 'waiting for parts: gateway\n  gateway: pulls its image\n'
  t.equal(await account([...times(90, pulling), undefined]), lasts)
  const flipping = Array.from({ length: 100 }, (_, i) => ({ what: 'gateway', why: i % 2 === 0 ? 'starts' : 'crashed' }))
  t.equal(await account([...flipping, undefined]), 'waiting for parts: gateway\n', 'what flips is no news')
  const again = [...times(30, pulling), ...times(3, GATEWAY), ...times(30, pulling), undefined]
  t.equal(await account(again), lasts, 'the same news again is none')
})

t.test('it ends with what was missing last', async (t) => {
  t.equal(
    await account([{ what: 'gateway', why: 'pulls its image' }], 2000),
    'waiting for parts: gateway\nfailed: waited 2s for parts: gateway: pulls its image\n',
  )
  t.equal(await account([GATEWAY], 2000), 'waiting for parts: gateway\nfailed: waited 2s for parts: gateway\n')
})

t.test('a signal ends it', async (t) => {
  const clock = new FakeClock()
  const stop = new AbortController()
  const init = { what: 'parts', timeoutMs: 1000, clock, signal: stop.signal, say: () => undefined, hint: '' }
  const waiting = waitUntil(() => Promise.resolve(GATEWAY), init)
  stop.abort(new Error('stopped'))
  await t.rejects(waiting, { message: 'stopped' })
})

t.test('an API server that is away is waited for, one that says no is not', async (t) => {
  const away = new ClusterApiError('Unavailable', 'list pods: cannot be reached')
  t.equal(
    await account([GATEWAY, away, away, undefined]),
    'waiting for parts: gateway\nwaiting for parts: the API server\n',
  )
  t.match(await account([away], 1000), /failed: waited 1 ?s for parts: the API server: list pods: cannot be reached/)
  t.equal(await account([new ClusterApiError('Forbidden', 'not you')]), 'failed: not you\n')
})

t.test('what does not come by itself is waited for a moment only', async (t) => {
  const stuck = { what: 'broker', why: 'no such image', mend: 'say --image' }
  t.equal(
    await account([stuck]),
    'waiting for parts: broker\n  broker: no such image\n' +
      'failed: stopped waiting for parts, which needs your action: broker: no such image\n',
  )
  t.equal(
    await account([...times(50, stuck), ...times(1, GATEWAY), ...times(50, stuck), undefined]).then(lastLine),
    'waiting for parts: broker',
    'what passes begins anew',
  )
  const clock = new FakeClock()
  const init = { what: 'parts', timeoutMs: 60_000, clock, signal: new AbortController().signal, say: () => undefined }
  const waiting = waitUntil(() => Promise.resolve(stuck), { ...init, hint: 'try again' }).catch(
    (error: unknown) => error,
  )
  await clock.advance(14_500)
  await clock.advance(250)
  const early = clock.monotonic()
  for (let n = 0; n < 8; n += 1) await clock.advance(250)
  t.match(await waiting, { hint: 'say --image' }, 'the hint is how to mend it')
  t.ok(clock.monotonic() < early + 10_000)
})

const lastLine = (text: string): string => text.trimEnd().split('\n').at(-1) ?? ''
