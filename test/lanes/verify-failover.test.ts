/**
 * `sealane verify --service --failover` on two plain sites: one of the two gateways of the calling site is drained and
 * taken back while the service of the other is called. The other site has one gateway, and says so.
 */
import { once } from 'node:events'
import { join } from 'node:path'
import t from 'tap'
import type { VerifyReport } from '../../cli/status/verify/verify-report.ts'
import { eventually } from '../support/eventually.ts'
import { type Netns, netnsMissing, withNetns } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Machine, type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

const SEALANE = join(import.meta.dirname, '../../bin/sealane')
t.setTimeout(240_000)

const MILANO: SitePlan = {
  ...{ name: 'milano', uplinks: '192.0', pods: '10.42', nodes: ['gw1', 'gw2'] },
  spec:
    '  gateways: [{ node: gw1, publicAddress: 192.0.11.2 }, { node: gw2, publicAddress: 192.0.12.2 }]\n' +
    `  dns: { listen: ['10.42.1.1:53', '10.42.2.1:53'] }\n`,
}
const PARIS: SitePlan = {
  ...{ name: 'paris', uplinks: '198.51', pods: '10.52', nodes: ['gw1'] },
  spec: `  gateways: [{ node: gw1, publicAddress: 198.51.11.2 }]\n  dns: { listen: ['10.52.1.1:53'] }\n`,
}
/** Of the pod that serves. */
const POD = '10.52.1.5'
const LONG = { deadlineMs: 60_000, intervalMs: 200 }

t.test('a gateway is drained while a service is called', { skip: netnsMissing() ?? false }, async (t) => {
  const sites = [MILANO, PARIS]
  const story =
    (pod: Netns) =>
    async ([milano, paris]: readonly PlainSite[]): Promise<void> => {
      if (milano === undefined || paris === undefined) throw new Error('no sites')
      try {
        await serves(pod, paris.machine('gw1'))
        paris.export('web', { name: 'gw1', podAddress: POD })
        milano.export('api', milano.machine('gw1'))
        for (const node of ['gw1', 'gw2']) milano.up(node)
        paris.up('gw1')
        for (const node of ['gw1', 'gw2']) {
          await eventually(() => milano.lanes(node).endsWith('(1 up)'), { ...LONG, say: `${node} serves` })
        }
        const two = await verified(milano, 'shop/web')
        t.match(two.row, { result: 'pass', measured: /^0 of \d+ calls lost.*; gw1 of milano drained and taken back$/ })
        t.equal(two.code, 0, two.said)
        t.match(two.said, `sealane gateway undrain gw1 --site ${milano.file}`)
        t.match(await milano.machine('gw2').run(['gateway', 'undrain', 'gw1', '--site', milano.file]), 'is not drained')
        const one = await verified(paris, 'shop/api')
        t.match(one.row, { result: 'skip', reason: 'OneGatewayOnly' })
      } catch (error) {
        t.comment(milano.said(), paris.said())
        throw error
      }
    }
  await withNetns((pod) => withPlainSites(temporaryFolder(t), sites, story(pod)))
})

/** Lanes let nothing in to the machine itself, so a namespace behind its bridge is the pod. */
async function serves(pod: Netns, { netns, podAddress }: Machine): Promise<void> {
  await netns.exec('ip', ['link', 'add', 'pod0', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', pod.name])
  await netns.exec('ip', ['link', 'set', 'pod0', 'master', 'cni0', 'up'])
  await pod.exec('ip', ['address', 'add', `${POD}/24`, 'dev', 'eth0'])
  await pod.exec('ip', ['link', 'set', 'eth0', 'up'])
  await pod.exec('ip', ['route', 'add', 'default', 'via', podAddress])
  await netns.exec('sysctl', ['-qw', 'net.ipv4.ip_forward=1'])
  const script = `require('node:net').createServer((s) => s.on('error', () => 0).end()).listen(80, '${POD}', () => console.log('ready'))`
  const child = pod.spawn(process.execPath, ['-e', script])
  await once(child.stdout!, 'data')
}

async function verified(site: PlainSite, service: string) {
  const words = ['verify', '--service', service, '--failover', '--site', site.file, '-o', 'json']
  const { netns } = site.machine('gw1')
  const passes = async (): Promise<boolean> => {
    const { stdout } = await netns.tryExec('dig', [`@${site.machine('gw1').podAddress}`, '+short', fullName(service)])
    return stdout.trim() !== ''
  }
  await eventually(passes, { ...LONG, say: `${service} has an address` })
  const { code, stdout, stderr } = await netns.tryExec(SEALANE, words)
  const { checks } = JSON.parse(stdout) as VerifyReport
  return { code, said: `${stderr}${stdout}`, row: checks.find(({ check }) => check === 'failover') }
}

function fullName(service: string): string {
  const [namespace = '', name = ''] = service.split('/')
  return `${name}.${namespace}.svc.clusterset.local`
}
