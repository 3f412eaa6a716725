/** The page by keyboard alone: the order of Tab, where the focus is, and what keys do. */
import type { Page } from 'playwright-core'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { openPage, startChromium } from './support/chromium.ts'
import { cutOffTokyo, exampleFacts } from './support/example-facts.ts'
import { startConsole } from './support/running-console.ts'

const browser = await startChromium(t)
const console = await startConsole(t, exampleFacts(cutOffTokyo))

interface Focus {
  /** Its place among all that can be reached; -1 if the document itself has the focus. Drawings come and go. */
  readonly place: number
  readonly what: string
  readonly outlinePx: number
  readonly inView: boolean
}

/** What a person may reach, besides links and fields: tables that scroll. */
const REACHABLE = `[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter((one) => !one.disabled && one.checkVisibility())`

function focusOf(page: Page): Promise<Focus> {
  return page.evaluate<Focus>(`(() => {
    const one = document.activeElement
    const { outlineStyle, outlineWidth } = getComputedStyle(one)
    const { top, bottom, left, right } = one.getBoundingClientRect()
    return {
      place: ${REACHABLE}.indexOf(one),
      what: (one.localName + ' ' + (one.getAttribute('aria-label') ?? one.textContent)).slice(0, 60),
      outlinePx: outlineStyle === 'none' ? 0 : parseFloat(outlineWidth),
      inView: bottom > 0 && right > 0 && top < innerHeight && left < innerWidth,
    }
  })()`)
}

for (const width of [1280, 390]) {
  t.test(`Tab visits everything once, in the order of the page, in sight: ${width} pixels`, async (t) => {
    const { page, context } = await openPage(browser, console.url, { viewport: { width, height: 800 } })
    const reachable = await page.evaluate<number>(`${REACHABLE}.length`)
    t.ok(reachable > 20, `${reachable} elements`)
    let before = -1
    for (let i = 0; i < reachable; i += 1) {
      await page.keyboard.press('Tab')
      const { place, what, outlinePx, inView } = await focusOf(page)
      if (place <= before) t.fail(`${what}: Tab went back after ${i} elements`)
      if (outlinePx < 2) t.fail(`${what}: the focus has no outline`)
      if (!inView) t.fail(`${what}: the focus is out of sight`)
      before = place
    }
    await page.keyboard.press('Tab')
    t.ok((await focusOf(page)).place < before, 'nothing else takes the focus')
    await context.close()
  })
}

t.test('the first key skips to the problems', async (t) => {
  const { page, context } = await openPage(browser, console.url)
  await page.keyboard.press('Tab')
  const link = page.getByRole('link', { name: 'Skip to the problems' })
  t.match(await focusOf(page), { what: 'a Skip to the problems', inView: true })
  const { x = -1, y = -1 } = (await link.boundingBox()) ?? {}
  t.ok(x >= 0 && y >= 0, `it is in sight while it has the focus: ${x}, ${y}`)
  await page.keyboard.press('Enter')
  t.equal(await page.evaluate('document.activeElement.id'), 'main')
  await page.keyboard.press('Tab')
  t.match(await focusOf(page), { what: /^button Copy: sealane status/ }, 'the next one is in the problems')
  await context.close()
})

t.test('a command is copied, and the page says so', async (t) => {
  const permissions = ['clipboard-read', 'clipboard-write']
  const { page, context } = await openPage(browser, console.url, { permissions })
  const button = page.getByRole('button', { name: 'Copy: sealane show gateways --context milano' })
  await button.focus()
  await page.keyboard.press('Space')
  await page
    .getByRole('status')
    .getByText('copied: sealane show gateways --context milano')
    .waitFor({ state: 'attached' })
  t.equal(await page.evaluate('navigator.clipboard.readText()'), 'sealane show gateways --context milano')
  await context.close()
})

t.test('the filter by its keys, and a table that scrolls', async (t) => {
  const { page, context } = await openPage(browser, console.url, { viewport: { width: 390, height: 800 } })
  await page.getByRole('searchbox', { name: 'Filter' }).focus()
  await page.keyboard.type('oregon')
  await page.getByRole('heading', { name: 'Clusters (1 of 4)' }).waitFor()
  await page.keyboard.press('ControlOrMeta+a')
  await page.keyboard.press('Delete')
  await page.getByRole('heading', { name: 'Clusters (4)' }).waitFor()
  const table = page.getByRole('region', { name: 'Links to other clusters' })
  await table.focus()
  await page.keyboard.press('ArrowRight')
  t.ok(await eventually(async () => (await page.evaluate<number>('document.activeElement.scrollLeft')) > 0))
  await context.close()
})

t.test('a path is explained by keyboard alone, and the result is read out', async (t) => {
  const { page, context, faults } = await openPage(browser, console.url)
  const path = page.getByRole('region', { name: 'Path' })
  await path.getByRole('combobox', { name: 'From' }).focus()
  await page.keyboard.type('shop/front-0')
  await page.keyboard.press('Tab')
  await page.keyboard.type('db.shop:5432')
  await page.keyboard.press('Enter')
  await path
    .getByRole('status')
    .getByText(/^UNDETERMINED: shop\/front-0 to db\.shop:5432\./)
    .waitFor()
  const steps = path.locator('ol').getByRole('listitem')
  t.ok((await steps.count()) > 3, 'each step is listed')
  t.match(await path.textContent(), /sealane explain shop\/front-0 db\.shop:5432 --context/)
  t.same(faults, [])
  await context.close()
})

t.test('a person who reads pauses the page by keyboard, and lets it go on', async (t) => {
  const own = await startConsole(t, exampleFacts())
  const { page, context } = await openPage(browser, own.url)
  const said = page.getByRole('status').filter({ hasText: /^healthy, 0 problems/ })
  await said.waitFor({ state: 'attached' })
  const button = page.getByRole('button', { name: 'Pause', exact: true })
  await button.focus()
  await page.keyboard.press('Space')
  await page.getByText('Paused: nothing on this page changes.').waitFor()
  const banner = page.getByRole('banner')
  const before = await banner.textContent()
  own.show(exampleFacts(cutOffTokyo))
  await page.evaluate(`new Promise((resolve) => {
    const events = new EventSource('/api/events')
    events.addEventListener('sections', ({ data }) => {
      if (!data.includes('ClusterCutOff')) return
      events.close()
      setTimeout(resolve, 1500)
    })
  })`)
  t.equal(await banner.textContent(), before, 'no text has changed, not even an age')
  t.equal(await button.getAttribute('aria-pressed'), 'true')
  await page.keyboard.press('Space')
  await page.getByRole('heading', { name: /ClusterCutOff: Cluster tokyo/ }).waitFor()
  await context.close()
})
