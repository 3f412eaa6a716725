import t from 'tap'
import { parseAddress } from '../../../../model/addresses/addresses.ts'
import {
  WEB_AFTER_MS,
  WEB_LINGERS_MS,
  type WebLink,
  type WebUse,
  planWebUse,
  webWants,
} from '../../../../gateway/reach/web/plan-web-use.ts'

const at = (address: string) => ({ address: parseAddress(address), port: 5000 })
const link = (state: WebLink['state'], address?: string): WebLink => {
  return { key: 'paris', remoteLane: 0, identity: 'far', state, ...(address === undefined ? {} : { at: at(address) }) }
}

/** Whether a link has the way, after each of these states at their times. */
function story(...steps: readonly (readonly [number, WebLink])[]): readonly boolean[] {
  let uses: ReadonlyMap<string, WebUse> = new Map()
  return steps.map(([ms, one]) => {
    uses = planWebUse([one], uses, ms)
    return webWants([one], uses, ms).length === 1
  })
}

t.test('which links have a way over port 443', async (t) => {
  const direct = '192.0.2.1'
  t.same(story([0, link('up', direct)], [99, link('up', direct)]), [false, false], 'one that is up without')
  t.same(story([0, link('connecting')], [WEB_AFTER_MS - 1, link('connecting')]), [false, false], 'others come first')
  t.same(
    story([0, link('connecting')], [WEB_AFTER_MS, link('connecting')]),
    [false, true],
    'one that nothing brings up',
  )
  const web = link('up', '127.0.0.1')
  t.same(story([0, web], [9_000_000, web]), [true, true], 'one that is there')
  t.same(story([0, web], [10, link('down', direct)], [11, link('down')]), [true, true, true], 'and goes down')
  const left = link('up', direct)
  t.same(story([0, web], [WEB_LINGERS_MS - 1, left], [WEB_LINGERS_MS, left]), [true, true, false], 'and finds another')
})
