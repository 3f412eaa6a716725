/** The page of the console as a person sees it: sections by their roles, a gateway that dies, a server that is away. */
import { writeFileSync } from 'node:fs'
import type { Locator, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import type { ConsoleFacts } from '../../console/console.ts'
import { eventually } from '../support/eventually.ts'
import { emptyArtefacts } from './support/artefacts.ts'
import { type WatchedPage, openPage, startChromium } from './support/chromium.ts'
import { EXAMPLE_TIME, cutOffTokyo, exampleFacts, gatewayDied } from './support/example-facts.ts'
import { type RunningConsole, startConsole } from './support/running-console.ts'

const SECTIONS = [
  ...['Problems', 'Clusters', 'Map', 'Gateways', 'Links', 'Services'],
  ...['Path', 'Flows', 'Denied packets', 'Charts', 'Events'],
]

const browser = await startChromium(t)

async function open(t: Test, facts: ConsoleFacts): Promise<WatchedPage & { readonly console: RunningConsole }> {
  const console = await startConsole(t, facts)
  const watched = await openPage(browser, console.url)
  t.teardown(() => watched.context.close())
  return { ...watched, console }
}

/** The section of this title, however many rows it has. A table in it that scrolls is a region too. */
function section(page: Page, title: string): Locator {
  return page.locator('main > section').and(page.getByRole('region', { name: new RegExp(`^${title}( \\(|$)`) }))
}

async function titles(page: Page): Promise<readonly string[]> {
  return page.getByRole('navigation', { name: 'Sections' }).getByRole('link').allTextContents()
}

t.test('sections, their rows and their commands', async (t) => {
  const { page } = await open(t, exampleFacts(cutOffTokyo))
  t.equal(await page.getByRole('heading', { level: 1 }).textContent(), 'Sealane: milano')
  const found = await titles(page)
  t.same(found, SECTIONS)
  for (const title of found) {
    await page.getByRole('navigation', { name: 'Sections' }).getByRole('link', { name: title, exact: true }).click()
    const one = section(page, title)
    t.equal(await one.count(), 1, `${title} is a region with a name`)
    const { y = -1 } = (await one.boundingBox()) ?? {}
    t.ok(y >= -1 && y < 800, `the link to ${title} leads there: ${y}`)
    t.ok((await one.getByText(/^sealane /).count()) > 0, `${title} says its command`)
  }
  const problems = section(page, 'Problems')
  t.match(await problems.getByRole('heading', { level: 3 }).allTextContents(), [/down ClusterCutOff: Cluster tokyo/])
  t.match(await problems.textContent(), /To do: Check the condition .*sealane show connections --context milano/)
  const tokyo = section(page, 'Clusters').getByRole('listitem').filter({ hasText: 'tokyo' })
  t.match(await tokyo.textContent(), /cut off.*links 0 of 4 up/)
  const links = section(page, 'Links').getByRole('table').getByRole('row')
  t.equal(await links.count(), 13, 'twelve links and the head')
  t.match(
    await links.nth(1).textContent(),
    /tokyo.*down.*open UDP 4500 at the other gateway/,
    'what is down comes first',
  )
  const services = section(page, 'Services').getByRole('table')
  t.match(
    await services.getByRole('row').filter({ hasText: 'shop/checkout' }).textContent(),
    /milano 100 %.*near-first/,
  )
  t.match(await section(page, 'Denied packets').textContent(), /access-not-exported/)
  const map = section(page, 'Map').getByRole('row').filter({ hasText: 'tokyo' })
  t.match(await map.first().textContent(), /down/, 'the table of the map says it too')
  const flows = section(page, 'Flows')
  const called = flows.getByRole('table', { name: 'Calls by service' })
  t.match(await called.getByRole('row').nth(1).textContent(), /shop\/payments.*4\.50.*2/)
  t.match(await flows.textContent(), /CallRefused.*web\/front-7c9/)
  t.match(await services.getByRole('row').filter({ hasText: 'shop/payments' }).textContent(), /4\.50/)
})

t.test('the filter', async (t) => {
  const { page } = await open(t, exampleFacts())
  await page.getByRole('searchbox', { name: 'Filter' }).fill('oregon')
  await page.getByRole('heading', { name: 'Clusters (1 of 4)' }).waitFor()
  const rows = await section(page, 'Links').getByRole('row').allTextContents()
  t.ok(rows.length === 5 && rows.slice(1).every((text) => text.includes('oregon')), rows.join('\n'))
})

t.test('a gateway dies, and comes back: the page says so by itself', async (t) => {
  const { page, console, requests } = await open(t, exampleFacts())
  await page.getByText('No problems.').waitFor()
  const gateway = section(page, 'Gateways').getByRole('row').filter({ hasText: 'gw1' })
  t.match(await gateway.textContent(), /reporting/)
  // The scripts of drawings come when a person is near them.
  const asked = (): readonly string[] => requests.filter((url) => !new URL(url).pathname.startsWith('/assets/'))
  const before = asked().length
  console.show(exampleFacts(gatewayDied))
  const problem = page.getByRole('heading', { name: /GatewaySilent/ })
  await problem.waitFor()
  t.match(await problem.textContent(), /degraded GatewaySilent: Gateway gw1/)
  t.match(await gateway.textContent(), /silent.*2026-11-25 11:58:00 UTC/, 'since when')
  await eventually(async () => (await page.title()) === 'degraded: milano')
  const summary = page.getByRole('banner').getByRole('listitem')
  t.same((await summary.allTextContents()).slice(0, 2), ['▲ degraded', '1 problem'])
  console.show(exampleFacts())
  await page.getByText('No problems.').waitFor()
  await eventually(async () => /reporting/.test((await gateway.textContent()) ?? ''))
  t.equal(asked().length, before, 'without another request')
  const events = section(page, 'Events').getByRole('row')
  for (const hasText of [/begins.*GatewaySilent: Gateway gw1/, /ends.*GatewaySilent: Gateway gw1/, /silent.*gw1/])
    await events.filter({ hasText }).first().waitFor()
})

t.test('facts that cannot be renewed', async (t) => {
  const { page, console } = await open(t, exampleFacts())
  console.fail('API server: no answer within 5s')
  const banner = page.getByText(/no new facts/)
  await banner.first().waitFor()
  t.match(
    await page.getByRole('banner').textContent(),
    /no new facts since \d{4}-\d\d-\d\d .* UTC.*: API server: no answer/,
  )
  t.equal(await section(page, 'Gateways').getByRole('row').count(), 3, 'the last facts stay')
  console.show(exampleFacts())
  await eventually(async () => (await banner.count()) === 0)
})

t.test('a server that is away: since when, and it comes back by itself', async (t) => {
  const { page, console } = await open(t, exampleFacts())
  const stopped = Date.now()
  await console.stop()
  const alert = page.getByRole('alert')
  await alert.waitFor()
  const text = (await alert.textContent()) ?? ''
  const [, since = ''] = /the console does not answer since (\S+ \S+) UTC: what you see is from before/.exec(text) ?? []
  const ms = Date.parse(`${since.replace(' ', 'T')}Z`)
  // A sign of life comes every five seconds.
  t.ok(ms > stopped - 10_000 && ms <= stopped + 1000, `${text}: it ended at ${new Date(stopped).toISOString()}`)
  t.equal(await section(page, 'Gateways').getByRole('row').count(), 3, 'the last facts stay')
  await startConsole(t, exampleFacts(gatewayDied), { port: Number(new URL(console.url).port) })
  await page.getByRole('heading', { name: /GatewaySilent/ }).waitFor()
  t.equal(await alert.count(), 0)
})

t.test('pictures of each section are kept', async (t) => {
  const keep = emptyArtefacts('console')
  const { page } = await open(t, exampleFacts(cutOffTokyo))
  await page.clock.setFixedTime(EXAMPLE_TIME + 4000)
  await eventually(async () => /12:00:00 UTC, 4 s ago/.test((await page.getByRole('banner').textContent()) ?? ''))
  const names = await page.evaluate<string[]>(`[...document.querySelectorAll('main section')].map(({ id }) => id)`)
  t.ok(names.length >= SECTIONS.length)
  for (const name of names) {
    const picture = await page.locator(`#${name}`).screenshot()
    t.ok(picture.length > 1000, name)
    writeFileSync(keep(`${name}.png`), picture)
  }
  for (const [width, colorScheme] of [
    [1280, 'light'],
    [1280, 'dark'],
    [390, 'light'],
    [390, 'dark'],
  ] as const) {
    await page.setViewportSize({ width, height: 800 })
    await page.emulateMedia({ colorScheme })
    writeFileSync(keep(`page-${width}-${colorScheme}.png`), await page.screenshot({ fullPage: true }))
  }
})
