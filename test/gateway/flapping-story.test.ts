/** A link that flaps beside a stable one, and a flapping link that is the only one. */
import t, { type Test } from 'tap'
import { MILANO, PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { endpoint } from './support/worlds.ts'

const SECOND = endpoint('paris', 'gw2', 1, ['public 198.51.100.21:4501'])
const FLAPPING = '246.0.2.1'

async function withTwoLinks(t: Test): Promise<Stage> {
  const stage = new Stage(t)
  stage.grouped = true
  stage.put(MILANO, PARIS, PARIS_GW, SECOND)
  for (const address of ['246.0.2.0', FLAPPING]) stage.probes.alive.add(address)
  stage.start()
  await stage.until(() => members(stage) === '731100000/731100002', 'two links carry')
  return stage
}

/** The members of the group that leads to paris, which has index 2. */
const members = (stage: Stage): string | undefined => /id 731101004 group (\S+) /.exec(stage.kernel())?.[1]
const link = (stage: Stage) => stage.gateway()?.connections.find(({ remoteLane }) => remoteLane === 1)
const events = (stage: Stage): string[] => stage.objects.events.splice(0).map(({ reason }) => reason)

async function goesDown(stage: Stage, times: number): Promise<void> {
  for (let i = 0; i < times; i += 1) {
    stage.probes.alive.delete(FLAPPING)
    await stage.until(() => link(stage)?.state === 'down', 'down')
    stage.probes.alive.add(FLAPPING)
    await stage.until(() => link(stage)?.state === 'up', 'up')
  }
}

t.test('it is held out of use, told, and used again', async (t) => {
  const stage = await withTwoLinks(t)
  await goesDown(stage, 3)
  await stage.until(() => members(stage) === '731100000/731100002', 'three times are nothing')
  t.equal(link(stage)?.held, undefined)
  events(stage)
  await goesDown(stage, 1)
  t.match(link(stage), { state: 'up', held: true, message: /^LinkFlaps: the link went down repeatedly; until \d{4}-/ })
  t.strictSame(events(stage), ['LinkFlaps'], 'up and down were told a moment ago')
  t.equal(members(stage), '731100000', 'the steady one alone carries')
  await stage.until(() => members(stage) === '731100000/731100002', 'used again')
  await stage.until(() => link(stage)?.held === undefined, 'and told')
  t.equal(link(stage)?.message, '')
  t.strictSame(events(stage), ['LinkSteady'])
})

t.test('it carries all the same where it is the only way', async (t) => {
  const stage = await withTwoLinks(t)
  await goesDown(stage, 4)
  t.equal(members(stage), '731100000')
  stage.probes.alive.delete('246.0.2.0')
  await stage.until(() => members(stage) === '731100002', 'the other one is silent')
  t.equal(link(stage)?.held, true)
  stage.probes.alive.add('246.0.2.0')
  await stage.until(() => members(stage) === '731100000', 'it is left again')
})

t.test('one that is silent says so before it is down, and until it has answered for a while', async (t) => {
  const stage = await withTwoLinks(t)
  await stage.until(() => link(stage)?.state === 'up', 'told')
  events(stage)
  stage.probes.alive.delete(FLAPPING)
  const diedMs = stage.clock.monotonic()
  await stage.until(() => link(stage)?.cause === 'ProbesUnanswered', 'silent')
  const reportedMs = stage.clock.monotonic()
  t.ok(reportedMs - diedMs < 1000, `told after ${reportedMs - diedMs} ms`)
  t.match(link(stage), { state: 'up', message: /^probes get no answers/ })
  stage.probes.alive.add(FLAPPING)
  const backMs = stage.clock.monotonic()
  await stage.until(() => link(stage)?.cause === undefined, 'calm')
  t.ok(stage.clock.monotonic() - backMs >= 3000, 'not at the first answer')
  t.match(link(stage), { state: 'up', message: '' })
  t.strictSame(events(stage), [], 'it was never down')
  stage.probes.alive.delete(FLAPPING)
  await stage.until(() => link(stage)?.state === 'down', 'down')
  t.not(link(stage)?.cause, 'ProbesUnanswered')
})
