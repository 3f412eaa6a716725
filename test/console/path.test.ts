/** One path explained: by the function of `sealane explain`, bounded, one at a time, and as a person reads it. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { h } from 'preact'
import { renderToString } from 'preact-render-to-string'
import t, { type Test } from 'tap'
import { explainPath, parseFrom, parseTo } from '../../explain/path/path.ts'
import { type ConsoleSource, runConsole } from '../../console/console.ts'
import { Page, createModel, takeSections } from '../../console/page/page.ts'
import { type Asking, askPath, askServer } from '../../console/page/path.ts'
import { type ConsoleServerInit, serveConsolePage } from '../../console/server/server.ts'
import { type PathAnswer, planPath } from '../../console/state/state.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { SECRETS } from '../cli/bundle/planted-secrets.ts'
import { memberObjects, pathObjects } from '../explain/path/two-members.ts'
import { eventually } from '../support/eventually.ts'
import { JumpingClock } from '../support/jumping-clock.ts'
import { SELF, factSet } from '../support/objects/member-facts.ts'
import { consoleFacts, stateOf } from './support/console-facts.ts'

const SIDE = { facts: factSet(memberObjects(SELF)), objects: pathObjects(SELF) }

function explained(from: string, to: string): Extract<PathAnswer, { t: 'explained' }> {
  const found = planPath(explainPath({ from: parseFrom(from), to: parseTo(to) }, { here: SIDE }), '--context c1')
  if (found.t !== 'explained') throw new Error(JSON.stringify(found))
  return found
}

interface Answered {
  readonly code: number
  readonly text: string
}

async function ask(url: string, path: string): Promise<Answered> {
  const asked = request(new URL(path, url), { agent: false })
  asked.end()
  const [response] = (await once(asked, 'response')) as [IncomingMessage]
  return { code: response.statusCode ?? 0, text: (await response.toArray()).join('') }
}

async function serve(t: Test, init: Partial<ConsoleServerInit>): Promise<string> {
  const server = await serveConsolePage({
    ...{ listen: { host: '127.0.0.1', port: 0 }, page: new Map(), clock: new SystemClock() },
    limits: { explainEveryMs: 0, ...init.limits },
    ...init,
  })
  t.teardown(() => server.close())
  return server.url
}

const QUESTION = '/api/explain?from=shop%2Ffront-0&to=db.shop%3A5432'

t.test('the same steps as the command', async (t) => {
  const found = explained('shop/front-0', 'db.shop:5432')
  const command = explainPath({ from: parseFrom('shop/front-0'), to: parseTo('db.shop:5432') }, { here: SIDE })
  if ('wrong' in command) throw new Error(command.wrong)
  t.same(
    found.steps.map(({ seq, station, decision, message }) => [seq, station, decision, message]),
    command.steps.map(({ seq, station, decision, message }) => [seq, station, decision, message]),
  )
  t.equal(found.outcome, command.outcome)
  t.equal(found.command, 'sealane explain shop/front-0 db.shop:5432 --context c1')
  t.ok(found.steps.some(({ isBack }) => isBack))
})

t.test('ends as the parsers of the command take them', async (t) => {
  const asked: string[] = []
  const explain = (question: object): Promise<PathAnswer> => {
    asked.push(JSON.stringify(question))
    return Promise.resolve(explained('w0', 'db.shop'))
  }
  const url = await serve(t, { explain })
  t.equal((await ask(url, QUESTION)).code, 200)
  const wrong = [
    '/api/explain',
    '/api/explain?from=w0',
    '/api/explain?from=a/b/c&to=db.shop',
    '/api/explain?from=w0&to=db',
    '/api/explain?from=w0&to=db.shop:99999',
    '/api/explain?from=w0&to=db.shop/sctp',
    `/api/explain?from=w0&to=${encodeURIComponent('db.shop;reboot')}`,
    `/api/explain?from=${'x'.repeat(400)}&to=db.shop`,
    `/api/explain?from=${encodeURIComponent('<script>\u001b[2J')}&to=db.shop`,
    '/api/explain?from=%ff%fe&to=%00',
  ]
  for (const path of wrong) {
    const { code, text } = await ask(url, path)
    t.equal(code, 400, path.slice(0, 60))
    t.match(JSON.parse(text), { t: 'wrong' })
    t.ok(text.length < 1000 && !text.includes('\u001b'))
  }
  t.equal((await ask(url, `/api/explain?from=w0&to=${'x'.repeat(20_000)}`)).code, 431, 'longer than any request')
  t.equal(asked.length, 1, 'no facts are read for a wrong question')
})

t.test('one at a time, and not too often', async (t) => {
  const free = Promise.withResolvers<PathAnswer>()
  const url = await serve(t, { explain: () => free.promise, limits: { explainEveryMs: 60_000 } })
  const first = ask(url, QUESTION)
  await eventually(async () => ((await ask(url, QUESTION)).code === 429 ? true : undefined))
  free.resolve(explained('w0', 'db.shop'))
  t.equal((await first).code, 200)
  t.match(await ask(url, QUESTION), { code: 429, text: /try again in a moment/ })
})

/** Ends with the signal alone. */
function endless(): { readonly counts: { begun: number; ended: number }; explain: ConsoleServerInit['explain'] } {
  const counts = { begun: 0, ended: 0 }
  const explain: ConsoleServerInit['explain'] = (_, signal) => {
    counts.begun += 1
    return new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => {
        counts.ended += 1
        reject(new Error('ended'))
      })
    })
  }
  return { counts, explain }
}

t.test('a reading that takes too long ends', async (t) => {
  const { counts, explain } = endless()
  const url = await serve(t, { explain, limits: { explainMs: 50, explainEveryMs: 0 } })
  t.same(await ask(url, QUESTION), { code: 504, text: '{"t":"failed","why":"no answer within 0.05 s"}' })
  await eventually(() => (counts.ended === 1 ? true : undefined))
  t.equal((await ask(url, QUESTION)).code, 504, 'the next one is not refused')
  const free = Promise.withResolvers<PathAnswer>()
  const deaf = await serve(t, { explain: () => free.promise, limits: { explainMs: 50, explainEveryMs: 0 } })
  t.equal((await ask(deaf, QUESTION)).code, 504)
  t.equal((await ask(deaf, QUESTION)).code, 429, 'what was begun goes on')
  free.resolve(explained('w0', 'db.shop'))
  await eventually(async () => ((await ask(deaf, QUESTION)).code === 200 ? true : undefined))
})

t.test('a client that goes ends the reading, and the next one is answered', async (t) => {
  const { counts, explain } = endless()
  const url = await serve(t, { explain })
  for (const round of [1, 2]) {
    const gone = request(new URL(QUESTION, url), { agent: false })
    gone.on('error', () => undefined)
    gone.end()
    await eventually(() => (counts.begun === round ? true : undefined))
    gone.destroy()
    await eventually(() => (counts.ended === round ? true : undefined))
  }
})

t.test('facts that cannot be had, and a console without this', async (t) => {
  const url = await serve(t, { explain: () => Promise.reject(new Error('no API server\u001b[2J')) })
  t.same(await ask(url, QUESTION), { code: 502, text: '{"t":"failed","why":"no API server?[2J"}' })
  t.equal((await ask(await serve(t, {}), QUESTION)).code, 404)
})

t.test('a whole console: facts are gathered for the question, and secrets in objects stay there', async (t) => {
  const stopping = new AbortController()
  const opened = Promise.withResolvers<string>()
  const objects = memberObjects(SELF)
  for (const items of Object.values(objects)) {
    for (const item of items as { metadata: object }[]) {
      Object.assign(item.metadata, { annotations: { note: SECRETS.join(' ') }, secret: SECRETS })
    }
  }
  const source: ConsoleSource = {
    facts: () => Promise.resolve(consoleFacts()),
    everyMs: undefined,
    pathSide: () => Promise.resolve({ facts: factSet(objects), objects: pathObjects(SELF) }),
  }
  const init = { listen: { host: '127.0.0.1', port: 0 }, page: new Map(), source, onOpen: opened.resolve }
  const ended = runConsole(init, stopping.signal)
  const { code, text } = await ask(await opened.promise, QUESTION)
  t.equal(code, 200)
  t.match(JSON.parse(text), { t: 'explained', outcome: 'UNDETERMINED', from: 'shop/front-0' })
  for (const secret of SECRETS) t.notOk(text.includes(secret))
  stopping.abort()
  await ended
})

t.test('a hostile explanation is cut and printable', async (t) => {
  const bad = `<img src=x>\u001b[2J\u202e${'n'.repeat(10 << 20)}`
  const whole = explainPath({ from: parseFrom('shop/front-0'), to: parseTo('db.shop:5432') }, { here: SIDE })
  if ('wrong' in whole) throw new Error(whole.wrong)
  const steps = whole.steps.map((step) => ({ ...step, message: bad, node: bad, reason: bad, notes: [bad, bad] }))
  const found = planPath(
    { ...whole, steps: [...steps, ...steps, ...steps, ...steps, ...steps], message: bad, next: bad, notAsked: [bad] },
    '--context c1',
  )
  const text = JSON.stringify(found)
  t.ok(text.length < 500_000, String(text.length))
  t.notMatch(text, /\\u001b|\u202e/)
  t.ok(found.t === 'explained' && found.steps.length <= 200)
})

t.test('a command for another cluster has no flags of this one', async (t) => {
  const whole = explainPath({ from: parseFrom('w0'), to: parseTo('db.shop') }, { here: SIDE })
  if ('wrong' in whole) throw new Error(whole.wrong)
  const rows: readonly [nextAt: string | undefined, next: string][] = [
    [undefined, 'sealane show connections --context c1'],
    ['paris', 'sealane show connections'],
  ]
  for (const [nextAt, next] of rows) {
    const input = { ...whole, outcome: 'UNREACHABLE' as const, next: 'sealane show connections' }
    t.match(planPath({ ...input, ...(nextAt === undefined ? {} : { nextAt }) }, '--context c1'), { next })
  }
})

// The page.

function pageWith(path: PathAnswer | { t: 'waiting' } | undefined): string {
  const model = createModel(0, () => undefined)
  takeSections(model, stateOf())
  model.path.value = path
  return renderToString(h(Page, { model }))
}

t.test('as a person reads it', async (t) => {
  const form = pageWith(undefined)
  for (const end of ['from', 'to']) t.match(form, new RegExp(`<input name="${end}" list="path-${end}" required`))
  t.match(form, /<option value="web0\.shop"/, 'services are offered')
  t.match(form, /sealane explain FROM TO --context c1/)
  t.match(pageWith({ t: 'waiting' }), /<p role="status">Reading facts\.<\/p>/)
  t.match(pageWith({ t: 'wrong', wrong: 'TO "db": expected a name', hint: 'see: x' }), /expected a name; see: x/)
  t.match(pageWith({ t: 'failed', why: 'no API server' }), /No answer: no API server/)
  const answer: PathAnswer = {
    ...explained('shop/front-0', 'db.shop:5432'),
    ...{ outcome: 'UNREACHABLE', failing: 2, next: 'sealane show connections --context c1', nextAt: 'paris' },
    message: '<b>bold</b>',
  }
  const html = pageWith(answer)
  t.match(html, /<p role="status">UNREACHABLE: shop\/front-0 to db\.shop:5432\. &lt;b>bold/)
  t.match(html, /<li class="step end"><h3>2\. name .*the path ends here<\/h3>/)
  t.match(html, /Next, in paris: .*sealane show connections --context c1/)
  t.notMatch(html, /<b>|style="/)
})

t.test('asking: a second question takes the place of the first, and what is no answer', async (t) => {
  const questions: { readonly text: string; readonly signal: AbortSignal; end: (answer: PathAnswer) => void }[] = []
  const model = createModel(0, undefined, () => ({
    drawings: undefined,
    explain: (ends, signal) => {
      const { promise, resolve } = Promise.withResolvers<PathAnswer>()
      questions.push({ text: JSON.stringify(ends), signal, end: resolve })
      return promise
    },
  }))
  model.ends.value = { from: ' w0 ', to: 'db.shop' }
  const first = askPath(model)
  model.ends.value = { from: 'w1', to: 'db.shop' }
  const second = askPath(model)
  t.same(
    questions.map(({ text, signal }) => [text, signal.aborted]),
    [
      ['{"from":"w0","to":"db.shop"}', true],
      ['{"from":"w1","to":"db.shop"}', false],
    ],
  )
  questions[1]?.end({ t: 'failed', why: 'second' })
  await second
  questions[0]?.end({ t: 'failed', why: 'first' })
  await first
  t.same(model.path.value, { t: 'failed', why: 'second' }, 'the answer to the later question stays')

  const went: string[] = []
  const browser = (...answers: readonly (readonly [status: number, text: string])[]): Asking => {
    const left = [...answers]
    return {
      location: { assign: (path) => void went.push(path) },
      fetch: (path) => {
        went.push(path)
        const [status, text] = left.shift() ?? [0, '']
        return status === 0 ? Promise.reject(new Error('away')) : Promise.resolve({ status, text: async () => text })
      },
    }
  }
  const { signal } = new AbortController()
  const askOnce = (from: Asking, ends = { from: 'a', to: 'b' }): Promise<PathAnswer> =>
    askServer(from, new JumpingClock(), ends, signal)
  const wrong = '{"t":"wrong","wrong":"a","hint":""}'
  t.same(await askOnce(browser([400, wrong]), { from: 'a b', to: '&' }), JSON.parse(wrong))
  const failed = '{"t":"failed","why":"no answer within 30 s"}'
  t.same(await askOnce(browser([504, failed])), JSON.parse(failed))
  t.same(await askOnce(browser([503, 'busy\n'])), { t: 'failed', why: 'busy' })
  t.same(await askOnce(browser([0, ''])), { t: 'failed', why: 'the console does not answer' })
  t.same(await askOnce(browser([200, '<html>'])), { t: 'failed', why: 'the console does not answer' })
  await askOnce(browser([401, 'log in']))
  t.equal(went[0], './api/explain?from=a+b&to=%26')
  t.equal(went.at(-1), './', 'the page goes to the login')
  const clock = new JumpingClock()
  const waited = askServer(browser([429, 'busy\n'], [400, wrong]), clock, { from: 'a', to: 'b' }, signal)
  await eventually(() => {
    clock.jump(1000)
    return went.length >= 9 ? true : undefined
  })
  t.same(await waited, JSON.parse(wrong), 'the path of another page is waited for')
})
