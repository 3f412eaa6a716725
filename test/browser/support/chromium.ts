/** The distribution's Chromium, driven by playwright-core, which has no browser of its own. */
import { type Browser, type BrowserContext, type BrowserContextOptions, type Page, chromium } from 'playwright-core'
import type { Test } from 'tap'

const CHROMIUM = '/usr/bin/chromium'

/** Starts a Chromium without a window. `args` are further options of its command line. */
export function launchChromium(args: readonly string[] = []): Promise<Browser> {
  return chromium.launch({
    executablePath: CHROMIUM,
    // Chromium refuses to start as root with its sandbox, and CI is root. It opens no page but ours here.
    chromiumSandbox: process.getuid?.() !== 0,
    args: [...args],
  })
}

/** The same, until the test ends. */
export async function startChromium(t: Pick<Test, 'teardown'>, args: readonly string[] = []): Promise<Browser> {
  const browser = await launchChromium(args)
  t.teardown(() => browser.close())
  return browser
}

/** A page, and what it did that a person does not see. */
export interface WatchedPage {
  readonly page: Page
  readonly context: BrowserContext
  /** The address of each request, also of those that were refused. */
  readonly requests: readonly string[]
  /** Errors of scripts, and what the browser complained about, such as the content security policy. */
  readonly faults: readonly string[]
}

/** Opens an address of the console, 1280 pixels wide unless the options say otherwise, and waits for its first facts. */
export async function openPage(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
  const page = await context.newPage()
  const [requests, faults]: [string[], string[]] = [[], []]
  context.on('request', (request) => void requests.push(request.url()))
  page.on('websocket', (socket) => void requests.push(socket.url()))
  page.on('pageerror', (error) => void faults.push(error.message))
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) faults.push(message.text())
  })
  // Its stream of events never ends, so that the network is never idle.
  await page.goto(url, { waitUntil: 'domcontentloaded' })
  await page.getByRole('heading', { name: /^Problems \(/ }).waitFor()
  return { page, context, requests, faults }
}
