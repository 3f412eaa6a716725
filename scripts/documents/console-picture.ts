/** docs/pictures/console.png: the page of the console with one cluster cut off. */
import { launchChromium, openPage } from '../../test/browser/support/chromium.ts'
import { EXAMPLE_TIME, cutOffTokyo, exampleFacts } from '../../test/browser/support/example-facts.ts'
import { startConsole } from '../../test/browser/support/running-console.ts'
import { withTeardowns } from './with-teardowns.ts'

/** A reader of the README loads it each time. */
const MAX_BYTES = 200_000
const SIZE = { width: 1280, height: 860 }
/** After the facts were read. */
const AGE_MS = 3000

/** A PNG. Throws Error if it is larger than a document should carry. */
export function consolePicture(): Promise<Buffer> {
  return withTeardowns(async (t) => {
    const { url } = await startConsole(t, exampleFacts(cutOffTokyo))
    const browser = await launchChromium()
    t.teardown(() => browser.close())
    const { page } = await openPage(browser, url, { viewport: SIZE, colorScheme: 'light' })
    await page.clock.setFixedTime(EXAMPLE_TIME + AGE_MS)
    await page
      .getByRole('banner')
      .getByText(`${AGE_MS / 1000} s ago`)
      .waitFor()
    const picture = await page.screenshot()
    if (picture.length <= MAX_BYTES) return picture
    throw new Error(`the picture of the console has ${picture.length} bytes: at most ${MAX_BYTES}`)
  })
}
