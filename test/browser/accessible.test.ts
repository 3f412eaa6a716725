/** What axe finds on the page, and what a narrow screen and a person who wants no motion see. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { BrowserContextOptions, Page } from 'playwright-core'
import t from 'tap'
import { exampleFacts, cutOffTokyo } from './support/example-facts.ts'
import { openPage, startChromium } from './support/chromium.ts'
import { startConsole } from './support/running-console.ts'

/** The page's own policy lets in no script of others, but what the debugger evaluates is no script of the page. */
const AXE = readFileSync(fileURLToPath(import.meta.resolve('axe-core/axe.min.js')), 'utf8')
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

/** A line for each rule that the page violates; empty if there is none. */
async function violations(page: Page): Promise<readonly string[]> {
  await page.evaluate(AXE)
  return page.evaluate<string[]>(`(async () => {
    const options = { preload: false, runOnly: { type: 'tag', values: ${JSON.stringify(TAGS)} } }
    const { violations, passes } = await axe.run(document, options)
    if (passes.length < 10) throw new Error('axe has looked at ' + passes.length + ' rules')
    return violations.map(({ id, help, nodes }) => [
      id + ': ' + help, ...nodes.slice(0, 5).map(({ target, failureSummary }) => target + ' ' + failureSummary),
    ].join('\\n'))
  })()`)
}

/** How many pixels of the page are beside the screen. */
const TOO_WIDE = 'document.documentElement.scrollWidth - innerWidth'

const browser = await startChromium(t)

const SCREENS: readonly (readonly [width: number, colorScheme: 'light' | 'dark'])[] = [
  [1280, 'light'],
  [1280, 'dark'],
  [390, 'light'],
  [390, 'dark'],
]

function screen(
  [width, colorScheme]: (typeof SCREENS)[number],
  more: BrowserContextOptions = {},
): BrowserContextOptions {
  return { viewport: { width, height: 800 }, colorScheme, reducedMotion: 'reduce', ...more }
}

t.test('axe finds what is wrong', async (t) => {
  const console = await startConsole(t, exampleFacts())
  const { page, context } = await openPage(browser, console.url)
  await page.evaluate(`document.querySelector('main').append(document.createElement('img'))`)
  await page.evaluate(`document.querySelector('h2').style.color = '#ccc'`)
  t.match([...(await violations(page))].sort(), [/^color-contrast: /, /^image-alt: /])
  await context.close()
})

for (const one of SCREENS) {
  t.test(`axe finds nothing, and nothing is beside the screen: ${one.join(' ')}`, async (t) => {
    const console = await startConsole(t, exampleFacts(cutOffTokyo))
    const { page, context, faults } = await openPage(browser, console.url, screen(one))
    t.same(await violations(page), [])
    t.equal(await page.evaluate(TOO_WIDE), 0)
    t.same(faults, [], 'axe does not touch the policy either')
    console.fail(`API server: no answer of https://${'long-name.'.repeat(20)}example within 5s`)
    await page
      .getByText(/no new facts/)
      .first()
      .waitFor()
    await page.getByRole('searchbox').fill('no such thing')
    await page.getByText('Nothing matches the filter.').first().waitFor()
    await console.stop()
    await page.getByRole('alert').waitFor()
    t.same(await violations(page), [], 'facts are old, nothing matches the filter, and the server is away')
    t.equal(await page.evaluate(TOO_WIDE), 0)
    await context.close()
  })
}

t.test('the page that asks for the token', async (t) => {
  const token = 'correct-horse-battery'
  for (const one of SCREENS) {
    // A console takes one attempt a second, and a fast machine is through with a screen earlier.
    const console = await startConsole(t, exampleFacts(), { token })
    const context = await browser.newContext(screen(one))
    const page = await context.newPage()
    await page.goto(console.url)
    t.same(await violations(page), [], one.join(' '))
    t.equal(await page.evaluate(TOO_WIDE), 0)
    await page.getByLabel('Token').fill(token)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: /^Problems \(/ }).waitFor()
    await context.close()
  }
})

t.test('nothing moves for a person who wants no motion', async (t) => {
  const console = await startConsole(t, exampleFacts())
  const { page, context } = await openPage(browser, console.url, screen([1280, 'light']))
  const moving = await page.evaluate<string[]>(`[...document.querySelectorAll('*')].filter((one) => {
    const { animationName, transitionDuration, scrollBehavior } = getComputedStyle(one)
    return animationName !== 'none' || !/^(0s(, )?)+$/.test(transitionDuration) || scrollBehavior !== 'auto'
  }).map(({ localName, className }) => localName + ' ' + className)`)
  t.same(moving, [])
  t.equal(await page.evaluate('document.getAnimations().length'), 0)
  await context.close()
})
