/** The status page of `sealane up` when a member joins while it runs: from then on calls through a lane are refused. */
import { execFileSync } from 'node:child_process'
import { connect } from 'node:net'
import t from 'tap'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { runCli, startCli } from '../cli/run-cli.ts'
import { SiteFolder } from '../cli/site-folder.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { inPrivateNetns } from '../support/netns.ts'
import { attack } from './support/attack.ts'
import { NO_FACTS, rawJoin } from './support/raw-join.ts'

const FAR_POD = '10.50.0.7'
const NOBODY = '203.0.113.9'

await inPrivateNetns(t, import.meta.url, async () => {
  // This machine may use these addresses as source addresses, though none of its interfaces has them.
  for (const range of ['10.50.0.0/16', '10.42.0.0/16', '203.0.113.0/24'])
    execFileSync('ip', ['route', 'add', 'local', range, 'dev', 'lo'])
  await attack('status-page-of-new-member', async (t) => {
    const broker = await LoopbackBroker.start(t)
    const site = new SiteFolder(t, 'milano')
    const joined = await runCli(['join', '--site', site.file, '--token', await broker.token()])
    t.equal(joined.code, 0, joined.stderr)
    const port = await freePort()
    const page = ['--component', 'agent', '--status-listen', `0.0.0.0:${port}`, '--log-level', 'silent']
    const running = startCli(['up', '--site', site.file, '--node', 'gw', ...page])
    t.teardown(async () => {
      running.stop()
      await running.result
    })
    const answered = (from: string): Promise<boolean> => isAnswered(port, from)
    await eventually(() => answered(FAR_POD), { say: 'a network that is nobody’s yet is answered' })
    await rawJoin(broker, 'north', { ...NO_FACTS, podCidrs: ['10.50.0.0/16'] })
    await eventually(async () => !(await answered(FAR_POD)), { say: 'it is a member’s now' })
    for (const from of [NOBODY, '10.42.0.7', '127.0.0.1']) t.ok(await answered(from), from)
  })
})

/** Whether the page answers a request from this source address. */
function isAnswered(port: number, localAddress: string): Promise<boolean> {
  return new Promise((resolve) => {
    let answer = ''
    connect({ port, host: '127.0.0.1', localAddress })
      .on('error', () => undefined)
      .on('data', (part: Buffer) => (answer += part.toString()))
      .on('close', () => resolve(answer.startsWith('HTTP/1.1 200 ')))
      .write('GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n')
  })
}
