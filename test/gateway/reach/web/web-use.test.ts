import t from 'tap'
import { parseAddress } from '../../../../model/addresses/addresses.ts'
import {
  CALLABLE_WEB_AFTER_MS,
  WEB_AFTER_MS,
  WEB_LINGERS_MS,
  type WebLink,
  type WebSince,
  type WebUse,
  planWebUse,
  webDueMs,
  webSince,
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
  t.same(
    story([0, link('connecting')], [WEB_AFTER_MS - 1, link('up', direct)], [WEB_AFTER_MS + 1, link('up', direct)]),
    [false, false, false],
    'one that another way brings up in time needs none',
  )
  t.same(
    story([0, link('connecting')], [WEB_AFTER_MS, link('connecting')], [WEB_AFTER_MS + 50, link('up', direct)]),
    [false, true, true],
    'one that comes up later keeps it for a time',
  )
  const web = link('up', '127.0.0.1')
  t.same(story([0, web], [9_000_000, web]), [true, true], 'one that is there')
  t.same(story([0, web], [10, link('down', direct)], [11, link('down')]), [true, true, true], 'and goes down')
  const left = link('up', direct)
  t.same(story([0, web], [WEB_LINGERS_MS - 1, left], [WEB_LINGERS_MS, left]), [true, true, false], 'and finds another')
})

t.test('a link with an end that can be called is given more time', async (t) => {
  const direct = '192.0.2.1'
  const callable = (state: WebLink['state'], address?: string): WebLink => {
    return { ...link(state, address), isCallable: true }
  }
  const first = callable('connecting')
  t.same(story([0, first], [CALLABLE_WEB_AFTER_MS - 1, first], [CALLABLE_WEB_AFTER_MS, first]), [false, false, true])
  t.same(
    story([0, first], [CALLABLE_WEB_AFTER_MS - 1, callable('up', direct)], [9000, callable('up', direct)]),
    [false, false, false],
    'the call of the second end has brought it up',
  )
  const web = callable('up', '127.0.0.1')
  t.same(story([0, web], [10, callable('down')]), [true, true], 'one that goes down there keeps its way')
  const uses = planWebUse([first], new Map(), 5)
  t.equal(webDueMs(uses, 5), 5 + CALLABLE_WEB_AFTER_MS)
})

t.test(
  'both ends count tries from when the link is up over port 443, and again after it went down there',
  async (t) => {
    const [web, direct] = ['127.0.0.1', '192.0.2.1']
    const since = (...steps: readonly (readonly [number, WebLink])[]): number | undefined => {
      let known: WebSince | undefined
      for (const [ms, one] of steps) known = webSince(one, known, ms)
      return known?.sinceMs
    }
    t.equal(since([5, link('up', direct)]), undefined)
    t.equal(since([5, link('up', web)], [900, link('up', web)]), 5)
    t.equal(since([5, link('up', web)], [900, link('down', web)]), undefined, 'the far end starts again')
    t.equal(since([5, link('up', web)], [900, link('down', direct)], [990, link('up', web)]), 990)
    const tried = [
      [5, link('up', web)],
      [900, link('up', direct)],
      [990, link('down', direct)],
      [995, link('connecting', web)],
    ] as const
    t.equal(since(...tried, [999, link('up', web)]), 5, 'a try that failed: the pauses still grow')
  },
)

t.test('a plan is due when the next link is to have a way', async (t) => {
  const due = (...steps: readonly (readonly [number, WebLink])[]): number => {
    let uses: ReadonlyMap<string, WebUse> = new Map()
    for (const [ms, one] of steps) uses = planWebUse([one], uses, ms)
    return webDueMs(uses, steps.at(-1)?.[0] ?? 0)
  }
  t.equal(due([0, link('up', '192.0.2.1')]), Infinity)
  t.equal(due([5, link('connecting')]), 5 + WEB_AFTER_MS)
  t.equal(due([5, link('connecting')], [100, link('connecting')]), 5 + WEB_AFTER_MS)
  t.equal(due([5, link('connecting')], [5 + WEB_AFTER_MS, link('connecting')]), Infinity, 'it has one')
  t.equal(due([0, link('up', '127.0.0.1')], [10, link('down')]), Infinity, 'it keeps its way')
})
