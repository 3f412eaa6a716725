/** Members and pages that are hostile, in a real browser: names stay texts, and other pages get nothing. */
import { type Server, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import type { ConsoleFacts, FlowsFacts } from '../../console/console.ts'
import { changeLinks } from '../explain/broken-member.ts'
import { openPage, startChromium } from './support/chromium.ts'
import { EXAMPLE_TIME, exampleFacts } from './support/example-facts.ts'
import { startConsole } from './support/running-console.ts'

/** A name that leads to this machine, as an attacker's name server would let it. */
const REBOUND = 'rebound.example'

const browser = await startChromium(t, [`--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`])

const EXPLAIN = 'api/explain?from=shop%2Ffront-0&to=db.shop'

const HTML = `"'><img src=/x onerror="window.owned=1"><script>window.owned=1</script><a href="javascript:owned=1">`
const ANSI = '\u001b[31mred\u001b[0m\u001b]8;;https://evil.example\u0007link'
const RTL = '\u202egnitcerid\u2066\u200f\u061c'
const LONG = 'Wide'.repeat(64)
const HOSTILE = [HTML, ANSI, RTL, LONG]

const evilFacts = (): ConsoleFacts => {
  const found = exampleFacts((at) => {
    changeLinks(at, ({ cluster }) => cluster === 'tokyo', { state: 'down', message: HOSTILE.join(' ') })
    changeLinks(at, ({ cluster }) => cluster === 'oregon', { state: 'connecting', message: 'x'.repeat(1 << 20) })
    for (const { spec } of at('Cluster')) spec['labels'] = Object.fromEntries(HOSTILE.map((text) => [text, text]))
    for (const [i, { metadata }] of at('ServiceImport').entries()) metadata.name = HOSTILE[i % HOSTILE.length] ?? ''
    for (const { status } of at('Gateway')) status['version'] = HTML
  })
  return { ...found, flows: { t: 'known', at: new Date(EXAMPLE_TIME).toISOString(), value: evilFlows() } }
}

const evilFlows = (): FlowsFacts => ({
  lines: HOSTILE.map((text): FlowsFacts['lines'][number] => ({
    ...{ at: text, node: text, outcome: 'refused', reason: text, protocol: text, port: 443 },
    from: { address: text, cluster: text, namespace: text, pod: text },
    to: { address: text, cluster: text, service: text },
  })),
  calls: HOSTILE.map((name) => ({
    ...{ name, callsPerSecond: 1, bytesPerSecond: 1, recent: { refused: 1, unanswered: 1 } },
  })),
  ...{ sampled: 20, problems: HOSTILE },
})

/** Control characters and those that turn the direction of a text. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/u

function otherHosts(url: string, requests: readonly string[]): readonly string[] {
  return requests.filter((one) => new URL(one).origin !== new URL(url).origin)
}

for (const width of [1280, 390]) {
  t.test(`what a member says is a text: ${width} pixels`, async (t) => {
    const console = await startConsole(t, evilFacts())
    const viewport = { width, height: 800 }
    const { page, context, requests, faults } = await openPage(browser, console.url, { viewport })
    const text = (await page.locator('body').textContent()) ?? ''
    t.ok(text.includes('<script>window.owned=1</script>') && text.includes('<img src=/x'), 'it is shown as it is')
    t.ok(text.includes('?[31mred?[0m'), 'escapes are marked')
    t.notMatch(text, UNSEEN)
    t.equal(await page.evaluate('typeof owned'), 'undefined')
    t.equal(
      await page.locator('img, iframe, object, embed, form:not(.ends), [onerror], [onclick], [style*=url]').count(),
      0,
    )
    t.equal(await page.locator('script:not([src])').count(), 0)
    t.equal(await page.locator('a:not([href^="#"])').count(), 0, 'no link leads away')
    t.equal(await page.evaluate('document.documentElement.scrollWidth - innerWidth'), 0, 'long names are broken')
    t.same(faults, [])
    const path = page.getByRole('region', { name: 'Path' })
    await path.getByRole('combobox', { name: 'From' }).fill(HTML)
    await path.getByRole('combobox', { name: 'To' }).fill('db.shop')
    await path.getByRole('button', { name: 'Explain', exact: true }).click()
    const status = path.getByRole('status').filter({ hasText: '<script>window.owned=1</script>' })
    await status.waitFor({ timeout: 10_000 })
    t.equal(await page.evaluate('typeof owned'), 'undefined', 'an answer about a wrong end is a text too')
    t.equal(await path.locator('img, script').count(), 0)
    t.equal(await page.evaluate('document.documentElement.scrollWidth - innerWidth'), 0)
    t.ok(requests.length >= 4, requests.join(' '))
    t.same(otherHosts(console.url, requests), [], 'no other host is asked')
    t.match(faults, [/status of 400/], 'the browser says that of the wrong end, and nothing else')
    t.equal(faults.length, 1)
    await context.close()
  })
}

/** A page of another origin, on another port. */
async function otherPage(t: Test): Promise<string> {
  const server: Server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>other</title>')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

/** What a script of the page gets: `answered …`, or `refused`. */
function got(page: Page, expression: string): Promise<string> {
  return page.evaluate<string>(`new Promise((resolve) => {
    const answered = (what) => resolve('answered ' + what)
    const refused = () => resolve('refused')
    ${expression}
  })`)
}

t.test('a page of another origin gets nothing', async (t) => {
  const console = await startConsole(t, exampleFacts())
  const context = await browser.newContext()
  t.teardown(() => context.close())
  const page = await context.newPage()
  await page.goto(await otherPage(t))
  const state = JSON.stringify(`${console.url}api/state`)
  const events = JSON.stringify(`${console.url}api/events`)
  t.equal(await got(page, `fetch(${state}).then((it) => it.text()).then(answered, refused)`), 'refused')
  const explain = JSON.stringify(`${console.url}${EXPLAIN}`)
  t.equal(await got(page, `fetch(${explain}).then((it) => it.text()).then(answered, refused)`), 'refused')
  t.equal(
    await got(
      page,
      `fetch(${state}, { mode: 'no-cors' }).then((it) => it.text()).then((it) => it === '' ? refused() : answered(it), refused)`,
    ),
    'refused',
  )
  t.equal(
    await got(
      page,
      `const it = new EventSource(${events}); it.onerror = refused; it.addEventListener('sections', answered)`,
    ),
    'refused',
  )
  t.equal(
    await got(
      page,
      `const it = document.createElement('iframe'); it.src = ${JSON.stringify(console.url)}
       it.onload = () => { try { answered(it.contentDocument.body.innerHTML) } catch { refused() } }
       document.body.append(it)`,
    ),
    'refused',
  )
  for (const frame of page.frames().slice(1)) t.notMatch(await frame.content(), /Sealane|milano/, 'it is not framed')
})

t.test('a name that was turned to this machine gets nothing', async (t) => {
  const console = await startConsole(t, exampleFacts())
  const context = await browser.newContext()
  t.teardown(() => context.close())
  const page = await context.newPage()
  const { port } = new URL(console.url)
  for (const path of ['', 'api/state', 'api/events', EXPLAIN, 'assets/']) {
    const answer = await page.goto(`http://${REBOUND}:${port}/${path}`)
    t.equal(answer?.status(), 403, path)
    t.notMatch(await page.content(), /milano|oregon/)
  }
})
