/** A join asks for confirmation before it changes the addresses of other members, from this machine or from a pod. */
import t from 'tap'
import type { LookAtJoin } from '../../../../cli/cluster/renumbering.ts'
import { RefusedError } from '../../../../protocol/broker-api.ts'
import { SYSTEM, cluster, gateway, join, node } from './joining.ts'

t.test('members whose addresses the join changes are named before, and asked about', async (t) => {
  const objects = [node('n1', 'True'), cluster('paris'), gateway()]
  const milano = { cluster: 'milano', globalCIDRs: ['244.0.0.0/16'] }
  const renumbered = [{ ...milano, openConnections: { count: 12, atLeast: false } }]
  const asked: string[] = []
  const look: LookAtJoin = ({ cluster: id, facts }) => {
    asked.push(`${id} ${facts.podCIDRs.join()} ${facts.serviceCIDRs.join()}`)
    return Promise.resolve({ globalCIDRs: ['244.1.0.0/16'], renumbered })
  }
  const names = 'other members get global addresses because .*: milano \\(244\\.0\\.0\\.0/16\\)\\. '
  const named = new RegExp(`^${names}About 12 open connections with pods of milano break; `, 'm')
  const questions: string[] = []
  const answer = (yes: boolean) => (question: string) => {
    questions.push(question)
    return Promise.resolve(yes)
  }
  const refused = await join(objects, undefined, { look, confirm: answer(false) })
  t.match(refused.outcome, { message: 'nothing was changed' })
  t.match(refused.said, named)
  t.strictSame(refused.reported, [], 'and nothing is done')
  const agreed = await join(objects, undefined, { look, confirm: answer(true) })
  t.strictSame(agreed.reported, ['joined', 'all parts are ready'])
  t.strictSame(questions, ['Join anyway', 'Join anyway'])
  t.strictSame(asked, Array(2).fill('paris 10.42.0.0/16 10.43.0.0/16'))
  const script = await join(objects, undefined, { look })
  t.match(script.said, named, 'nobody can be asked: it is said')
  t.strictSame(script.reported, ['joined', 'all parts are ready'])
  const older = await join(objects, undefined, {
    look: () => Promise.resolve({ globalCIDRs: [], renumbered: [milano] }),
  })
  const notKnown = new RegExp(`^${names}Open connections with pods of milano break, how many is not known; `, 'm')
  t.match(older.said, notKnown, 'a member, or a broker, of an earlier release does not tell')
  const nobody = await join(objects, undefined, {
    look: () => Promise.resolve({ globalCIDRs: [], renumbered: [] }),
    confirm: answer(false),
  })
  t.strictSame(nobody.reported, ['joined', 'all parts are ready'], 'nobody is renumbered: nothing is asked')
  t.notMatch(nobody.said, /get global addresses|cannot tell whether/)
})

t.test('a broker of an older release cannot say before, and stops nobody', async (t) => {
  const objects = [node('n1', 'True'), cluster('paris'), gateway()]
  const error = new RefusedError('InvalidValue', 'csr', 'csr: malformed')
  const { said, reported } = await join(objects, undefined, { look: () => Promise.reject(error) })
  const note =
    'note: the broker is of an older release and cannot tell whether this join changes addresses of other members; '
  t.match(said, note)
  t.strictSame(reported, ['joined', 'all parts are ready'])
})

t.test('where an operator of the broker decides, nobody else is asked', async (t) => {
  const objects = [node('n1', 'True'), cluster('paris'), gateway()]
  const look = () => Promise.reject(new RefusedError('JoinAwaitsApproval', 'approval', 'approval: an operator decides'))
  const confirm = () => Promise.resolve(false)
  const { said, reported } = await join(objects, undefined, { look, confirm })
  t.notMatch(said, 'cannot be reached from here')
  t.strictSame(reported, ['joined', 'all parts are ready'])
})

t.test(
  'a broker that is not reached from here is asked by the agent, before anything changes for others',
  async (t) => {
    const objects = [node('n1', 'True'), cluster('paris'), gateway()]
    const look = (): Promise<never> => Promise.reject(new Error('nobody answers at 192.0.2.1:7443'))
    const note =
      'note: the broker cannot be reached from here: before the join, the agent asks it what changes for other members'
    const nobody = await join(objects, undefined, { look })
    t.match(nobody.said, note)
    t.strictSame(nobody.reported, ['joined', 'all parts are ready'], 'nobody is renumbered: nothing is asked')
    const text = 'other members get global addresses by this join: milano (244.1.0.0/16)'
    const asked: string[] = []
    for (const yes of [false, true, undefined]) {
      const confirm = (question: string): Promise<boolean> => (asked.push(question), Promise.resolve(yes === true))
      const more = yes === undefined ? { look } : { look, confirm }
      const done = await join(objects, (admin) => (admin.wouldRenumber = text), more)
      t.match(done.said, `${text}\n`, `said, ${String(yes)}`)
      if (yes === false) {
        t.match(done.outcome, { message: /^this cluster has not joined: the token was removed/ })
        const left = await done.admin.get({
          apiVersion: 'v1',
          kind: 'Secret',
          name: 'sealane-identity',
          namespace: SYSTEM,
        })
        t.notMatch(left, { data: { token: String } }, 'the agent finds none')
      } else t.strictSame(done.reported, ['joined', 'all parts are ready'])
    }
    t.strictSame(asked, ['Join anyway', 'Join anyway'], 'with --yes it is only said')
  },
)
