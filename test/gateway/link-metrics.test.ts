/** Metrics of links: no member can create many labels, and a link that is gone has no metric. */
import t from 'tap'
import { PARIS, PARIS_GW, Stage } from './support/stage.ts'
import { cluster, endpoint } from './support/worlds.ts'

const LINK = 'cluster="(\\w+)",lane="(\\d)",remote_lane="(\\d)"'

/** Each series of a link, as `paris 0 3 sealane_gateway_connection_up`. */
async function series(stage: Stage): Promise<string[]> {
  const lines = (await stage.metrics.text()).split('\n').filter((line) => line.includes('cluster="'))
  return lines.map((line) => {
    const [, name = line, labels = ''] = /^(\w+)\{(.*)\} /.exec(line) ?? []
    const ours = new RegExp(`^${LINK}(,state="(connecting|up|down)")?,component="gateway"$`)
    const [all, clusterId, lane, remoteLane] = ours.exec(labels) ?? []
    return all === undefined ? `other labels: ${line}` : `${clusterId} ${lane} ${remoteLane} ${name}`
  })
}

const links = (found: readonly string[]): string[] => [
  ...new Set(found.map((one) => one.split(' ').slice(0, 3).join(' '))),
]

t.test('each link has its series while there is one', async (t) => {
  const stage = new Stage(t)
  const far = [0, 3, 7].map((lane) => endpoint('paris', `gw${lane}`, lane, [`public 198.51.100.2${lane}:450${lane}`]))
  stage.put(PARIS, ...far, cluster('rome', 3, '10.44.0.0/16'), endpoint('rome', 'gw', 0, ['public 198.51.100.40:4500']))
  for (const address of ['246.0.2.0', '246.0.2.3', '246.0.3.0']) stage.probes.alive.add(address)
  stage.start()
  const up = (): number => stage.gateway()?.connections.filter(({ state }) => state === 'up').length ?? 0
  await stage.until(() => up() === 3, 'all but one are up')
  await stage.passSlowly(3000)
  const all = await series(stage)
  t.strictSame(links(all).sort(), ['paris 0 0', 'paris 0 3', 'paris 0 7', 'rome 0 0'])
  t.ok(all.includes('paris 0 3 sealane_gateway_transitions_total'))
  t.ok(all.includes('paris 0 3 sealane_gateway_connection_up'))

  stage.objects.drop('Endpoint', 'paris.gw3-lane3')
  stage.objects.drop('Cluster', 'rome')
  await stage.until(() => stage.gateway()?.connections.length === 2, 'two are gone')
  await stage.passSlowly(3000)
  t.strictSame(links(await series(stage)).sort(), ['paris 0 0', 'paris 0 7'])
})

t.test('a lane that nobody may have makes no series', async (t) => {
  const stage = new Stage(t)
  const wrong = [8, 255].map((lane) => endpoint('paris', `gw${lane}`, lane, ['public 198.51.100.21:4500']))
  stage.put(PARIS, PARIS_GW, ...wrong)
  stage.start()
  await stage.until(() => stage.connection('paris') !== undefined, 'known')
  await stage.passSlowly(3000)
  t.strictSame(links(await series(stage)), ['paris 0 0'])
})
