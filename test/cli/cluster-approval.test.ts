/** Two operators take part in an approval: one at the joining site and one at the broker. */
import t, { type Test } from 'tap'
import { podBroker } from '../../cli/broker/pod-broker.ts'
import { adminSocket } from '../../protocol/admin/admin-socket.ts'
import type { ManifestObject } from '../../install/values/manifest.ts'
import { failure } from '../support/failure.ts'
import { MemoryAdmin } from '../support/memory-admin.ts'
import { dialSocket } from '../support/served-admin.ts'
import { LoopbackBroker } from './loopback-broker.ts'
import { type StartedCli, runCli, startCli } from './run-cli.ts'
import { SiteFolder, withoutLikelyRung } from './site-folder.ts'

const TIME = /\d{4}-\d\d-\d\dT[0-9:.]+Z/g
const SHA = /SHA256:[A-Za-z0-9+/]{43}/
/** The output of a join that the broker holds until an operator accepts it. */
const WAITS =
  /^(\S+) waits for approval .* The fingerprint of its key is (\S+)\. .*\nwaiting for approval; Ctrl-C withdraws/m
const plain = (text: string): string => text.replace(TIME, 'TIME').replaceAll(/ +/g, ' ')

/** Returns a function that runs a command beside the broker. */
function beside(broker: LoopbackBroker) {
  return async (...words: string[]) => {
    const { code, stdout, stderr } = await runCli([...words, '--state', broker.state])
    return { code, stdout: plain(stdout), stderr: plain(stderr) }
  }
}

/** Resolves with the key fingerprint once the join waits, and checks that the broker and the site show the same one. */
async function waits(t: Test, broker: LoopbackBroker, join: StartedCli): Promise<string> {
  const [, id = '', named = ''] = await join.remarked(WAITS)
  const waiting = await broker.tokens((store) => store.waiting())
  t.equal(waiting.find((one) => one.id === id)?.fingerprint, named, `${id} waits, with the key that it names`)
  return named
}

function joining(site: SiteFolder, token: string, ...more: string[]) {
  return startCli(['join', '--site', site.file, '--token', token, ...more])
}

t.test('a site waits, says what to compare, and joins once it is accepted', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const sealane = beside(broker)
  const site = new SiteFolder(t, 'paris')
  const join = joining(site, await broker.token())
  const fingerprint = await waits(t, broker, join)
  t.same(site.identity(), ['0700 identity/', '0600 identity/joining.key'])
  const listed = await sealane('cluster', 'waiting')
  t.match(listed.stdout, /^CLUSTER WHAT STATE FINGERPRINT PODS SERVICES FROM TOKEN SINCE UNTIL\n/)
  t.match(listed.stdout, `paris join waiting ${fingerprint} 10.42.0.0/16 10.43.0.0/16 127.0.0.1 `)
  t.match(await sealane('cluster', 'list'), {
    stderr: 'none\nwaiting for approval: paris; see: sealane cluster waiting\n',
  })
  const wrong = await sealane('cluster', 'accept', 'paris', '--fingerprint', `SHA256:${'A'.repeat(43)}`)
  t.match(wrong, { code: 1, stderr: /waits with a different key: SHA256:.*\nreason: FingerprintDiffers\n$/ })
  t.match(await sealane('cluster', 'accept', 'oslo'), { code: 1, stderr: /reason: WaitingUnknown\n$/ })
  t.same(await sealane('cluster', 'accept', 'paris', '--fingerprint', fingerprint), {
    code: 0,
    stdout: `cluster paris (${fingerprint}) accepted: it joins with its next request\n`,
    stderr: '',
  })
  const { code, stdout, stderr } = await join.result
  t.equal(code, 0, stderr)
  t.equal(stdout, 'paris has joined clusterset demo with its own addresses\n')
  t.equal(
    withoutLikelyRung(stderr),
    `paris waits for approval by an operator of the broker. The fingerprint of its key is ${fingerprint}. ` +
      `On the broker, run: sealane cluster accept paris --fingerprint ${fingerprint}\n` +
      'waiting for approval; Ctrl-C withdraws the request\n' +
      `next, on each node: sealane up --site ${site.file} --node NAME\n`,
  )
  t.match(await sealane('cluster', 'accept', 'paris'), {
    code: 0,
    stdout: /was already accepted: nothing was changed\n$/,
  })
  t.same(await sealane('cluster', 'waiting'), { code: 0, stdout: '', stderr: 'none\n' })
})

t.test('Ctrl-C takes the request back, and the token is good again', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const token = await broker.token()
  const site = new SiteFolder(t, 'paris')
  const first = joining(site, token)
  const fingerprint = await waits(t, broker, first)
  first.stop()
  const { stderr } = await first.result
  t.match(stderr, /the request was withdrawn; the token can be used again\n/)
  t.same(await broker.tokens((store) => store.waiting()), [])
  t.same(site.identity(), [], 'nothing is left of it')
  const second = joining(site, token)
  t.not(await waits(t, broker, second), fingerprint, 'another attempt, another key')
  second.stop()
  await second.result
})

t.test('time is over: the key stays, and the same command goes on', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const token = await broker.token()
  const site = new SiteFolder(t, 'paris')
  const first = await joining(site, token, '--approval-timeout', '1s').result
  t.equal(first.code, 1)
  t.match(
    first.stderr,
    /sealane: not approved after 1s: paris waits for approval by an operator .*\nto keep waiting, run the same command with the same token\nreason: JoinAwaitsApproval\n$/,
  )
  const [fingerprint] = SHA.exec(first.stderr) ?? []
  await broker.tokens((store) =>
    store.accept({ cluster: 'paris', ...(fingerprint === undefined ? {} : { fingerprint }) }),
  )
  const second = await joining(site, token).result
  t.match(second, { code: 0, stdout: 'paris has joined clusterset demo with its own addresses\n' })
})

t.test('a broker that starts anew finds the request again, and who waits waits on', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const site = new SiteFolder(t, 'paris')
  const join = joining(site, await broker.token())
  const fingerprint = await waits(t, broker, join)
  await broker.stop()
  await broker.tokens((store) => store.accept({ cluster: 'paris', fingerprint }))
  await broker.start({ approve: true })
  t.match(await join.result, { code: 0 })
})

t.test('refused: the site says so, and keeps nothing', async (t) => {
  const broker = await LoopbackBroker.start(t, { approve: true })
  const sealane = beside(broker)
  const site = new SiteFolder(t, 'paris')
  const join = joining(site, await broker.token())
  const fingerprint = await waits(t, broker, join)
  t.match(await sealane('cluster', 'refuse', 'paris'), {
    code: 0,
    stdout: `cluster paris (${fingerprint}) refused\n`,
  })
  t.match(await sealane('cluster', 'refuse', 'paris'), {
    code: 0,
    stdout: /was already refused: nothing was changed\n$/,
  })
  const { code, stderr } = await join.result
  t.equal(code, 1)
  t.match(
    plain(stderr),
    /sealane: approval: an operator of the broker refused cluster "paris" at TIME\nreason: JoinRefusedByOperator\n$/,
  )
  t.same(site.identity(), [])
})

t.test('only the token asks', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const sealane = beside(broker)
  const made = await sealane('token', 'create', '--approve', '-o', 'json')
  const { token } = JSON.parse(made.stdout) as { token: string }
  const join = joining(new SiteFolder(t, 'paris'), token)
  await waits(t, broker, join)
  t.match((await sealane('token', 'list', '-o', 'wide')).stdout, / waiting 1 any - - TIME paris - TIME\n$/)
  t.match((await joining(new SiteFolder(t, 'milano'), await broker.token()).result).code, 0)
  join.stop()
  await join.result
})

/** Returns a cluster whose broker pod has the admin service of a real broker. */
function hub(broker: LoopbackBroker): MemoryAdmin {
  const labels = { 'app.kubernetes.io/name': 'sealane', 'app.kubernetes.io/component': 'broker' }
  const metadata = { name: 'sealane-broker-0', namespace: 'sealane-broker', labels }
  const ready = { conditions: [{ type: 'Ready', status: 'True' }] }
  const pod: ManifestObject = { apiVersion: 'v1', kind: 'Pod', metadata, status: ready }
  const admin = new MemoryAdmin([pod])
  admin.dial = () => dialSocket(adminSocket(broker.state))
  return admin
}

async function waitingSites(t: Test, broker: LoopbackBroker, token: () => Promise<string>, ...ids: string[]) {
  const all = await Promise.all(ids.map(async (id) => joining(new SiteFolder(t, id), await token())))
  for (const join of all) await waits(t, broker, join)
  return all
}

t.test('in the pod of a broker on a cluster', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const admin = hub(broker)
  const there = podBroker(admin, { flags: '--context hub', signal: new AbortController().signal })
  const token = async (): Promise<string> => (await there.createToken({ approve: true })).text
  const [paris, oslo] = await waitingSites(t, broker, token, 'paris', 'oslo')
  const waiting = await there.waiting()
  t.same(waiting, await broker.tokens((store) => store.waiting()))
  const { fingerprint = '' } = waiting.find(({ id }) => id === 'paris') ?? {}
  t.match(await failure(there.accept({ cluster: 'tokyo' })), { reason: 'WaitingUnknown' })
  t.match(await there.accept({ cluster: 'paris', fingerprint }), { id: 'paris', fingerprint, repeated: false })
  t.match(await there.refuse({ cluster: 'oslo' }), { id: 'oslo', repeated: false })
  t.match(await paris?.result, { code: 0 })
  t.match(await oslo?.result, { code: 1 })
})
