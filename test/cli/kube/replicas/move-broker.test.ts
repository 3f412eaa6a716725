/**
 * `sealane broker deploy --move`: the order in which it stops workloads, runs the move and removes objects, and a move
 * that is interrupted.
 */
import t from 'tap'
import { type BrokerOptions, withOptions } from '../../../../cli/broker/deploy/deploy-options.ts'
import { moveBroker } from '../../../../cli/broker/deploy/move-broker.ts'
import { MOVE_POD, canMove, planMovePod } from '../../../../cli/broker/deploy/plan-move.ts'
import type { ManifestObject } from '../../../../install/values/manifest.ts'
import { planBroker } from '../../../../install/plan-broker.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../../install/values/install-values.ts'
import { SystemClock } from '../../../../reconcile/clock.ts'
import { UserError } from '../../../../runtime/errors.ts'
import { failure, messageOf } from '../../../support/failure.ts'
import { MemoryAdmin } from '../../../support/memory-admin.ts'

const { signal } = new AbortController()
const chosen = (options: BrokerOptions): InstallValues =>
  withOptions(DEFAULT_VALUES, { advertise: ['a.example.org:7443'], ...options })
const OWN = chosen({})
const INCLUDED = chosen({ replicas: 3 })
const GIVEN = chosen({ etcdEndpoints: ['h1:2379', 'h2:2379'], etcdUser: 'hub', etcdSecret: 'login' })
const objectsOf = (values: InstallValues): readonly ManifestObject[] =>
  planBroker(values).flatMap((part) => part.objects)

interface Spec {
  readonly containers: readonly [
    {
      readonly args: readonly string[]
      readonly readinessProbe: unknown
      readonly volumeMounts: readonly { readonly mountPath: string }[]
    },
  ]
  readonly volumes: readonly { readonly name: string }[]
  readonly restartPolicy: string
}

t.test('what is run', (t) => {
  const rows: readonly (readonly [string, InstallValues, InstallValues, string])[] = [
    [
      'to the etcd beside it',
      OWN,
      INCLUDED,
      `--from sqlite --to ${INCLUDED.broker.etcd.url} --state /var/lib/sealane/broker --etcd-ca /etc/sealane-etcd/ca.crt ` +
        '--etcd-cert /etc/sealane-etcd/tls.crt --etcd-key /etc/sealane-etcd/tls.key',
    ],
    [
      'back',
      INCLUDED,
      OWN,
      `--from ${INCLUDED.broker.etcd.url} --to sqlite --state /var/lib/sealane/broker --etcd-ca ` +
        '/etc/sealane-etcd/ca.crt --etcd-cert /etc/sealane-etcd/tls.crt --etcd-key /etc/sealane-etcd/tls.key',
    ],
    [
      'to one that was given',
      OWN,
      GIVEN,
      '--from sqlite --to etcd://hub@h1:2379,h2:2379/sealane --state /var/lib/sealane/broker --etcd-ca ' +
        '/etc/sealane-etcd/ca.crt --etcd-password-file /etc/sealane-etcd/password',
    ],
  ]
  for (const [name, before, values, words] of rows) {
    const spec = planMovePod({ before, values })['spec'] as Spec
    const [{ args, volumeMounts, readinessProbe }] = spec.containers
    t.equal(args.join(' '), `broker migrate ${words}`, name)
    t.strictSame(volumeMounts.map(({ mountPath }) => mountPath).sort(), [
      '/etc/sealane-etcd',
      '/etc/sealane/authority',
      '/tmp',
      '/var/lib/sealane',
    ])
    const data = spec.volumes.find((volume) => volume.name === 'data')
    t.match(data, { persistentVolumeClaim: { claimName: 'sealane-broker-data' } }, `${name}: the volume`)
    t.equal(spec.restartPolicy, 'Never')
    t.strictSame(readinessProbe, { tcpSocket: { port: 1 } }, `${name}: never ready, whatever probe the broker has`)
  }
  t.ok(canMove({ before: OWN, values: GIVEN }) && canMove({ before: GIVEN, values: OWN }))
  for (const [before, values] of [
    [INCLUDED, GIVEN],
    [GIVEN, INCLUDED],
    [OWN, OWN],
    [GIVEN, GIVEN],
  ] as const)
    t.notOk(canMove({ before, values }))
  t.end()
})

/** A cluster whose pods end in the given phase, and whose StatefulSets are ready at once. */
class Hub extends MemoryAdmin {
  phase: object = { phase: 'Succeeded' }
  onCreate: (() => void) | undefined

  override apply(object: ManifestObject, options: { readonly dryRun: boolean }) {
    const status = object.kind === 'StatefulSet' ? { status: { readyReplicas: 3 } } : {}
    return super.apply({ ...object, ...status }, options)
  }

  override create(object: ManifestObject): Promise<ManifestObject> {
    const made = super.create(object.kind === 'Pod' ? { ...object, status: this.phase } : object)
    this.onCreate?.()
    return made
  }
}

async function move(admin: Hub, before: InstallValues, values: InstallValues): Promise<string> {
  const said: string[] = []
  const init = { before, values, secrets: [], timeoutMs: 2000, clock: new SystemClock(), signal }
  await moveBroker(admin, { ...init, say: (text) => said.push(text), report: () => undefined })
  return said.join('')
}

const steps = ({ done }: Hub): readonly string[] => done.filter((line) => !/(apply|remove) (Network|PodDis)/.test(line))
const POD = `Pod sealane-broker/${MOVE_POD}`
const WORKLOAD = 'sealane-broker/sealane-broker'
const ETCD = 'sealane-broker/sealane-etcd'

t.test('to an etcd, and back', async (t) => {
  const hub = new Hub(objectsOf(OWN))
  t.match(
    await move(hub, OWN, INCLUDED),
    /stopped .*keep working, changes wait\n {2}moving .*\n {2}removed {3}StatefulSet/,
  )
  t.strictSame(
    steps(hub).filter((line) => !line.startsWith('apply')),
    [
      `merge StatefulSet ${WORKLOAD}`,
      `remove ${POD}`,
      `create ${POD}`,
      `remove ${POD}`,
      `remove StatefulSet ${WORKLOAD}`,
    ],
    'what was there before goes last',
  )
  const at = (step: string): number => steps(hub).indexOf(step)
  t.ok(at(`apply StatefulSet ${ETCD}`) < at(`merge StatefulSet ${WORKLOAD}`), 'etcd is there before anything stops')

  const back = new Hub(objectsOf(INCLUDED))
  await move(back, INCLUDED, OWN)
  t.ok(steps(back).includes(`apply PersistentVolumeClaim sealane-broker/sealane-broker-data`))
  t.ok(steps(back).includes(`remove Deployment ${WORKLOAD}`))
  t.ok(steps(back).includes(`remove StatefulSet ${ETCD}`), 'its etcd goes too, and its volumes stay')
  t.notOk(
    back.done.some((line) =>
      /remove (PersistentVolumeClaim|Secret|Namespace|Service sealane-broker\/sealane-broker$)/.test(line),
    ),
  )
  const given = new Hub(objectsOf(GIVEN))
  await move(given, GIVEN, OWN)
  t.notOk(
    given.done.some((line) => line.includes('sealane-etcd')),
    'nothing of an etcd of ours',
  )
})

t.test('it fails, and goes on when it is typed again', async (t) => {
  const hub = new Hub(objectsOf(OWN))
  hub.phase = {
    phase: 'Failed',
    containerStatuses: [{ state: { terminated: { message: 'sealane: etcd at h1:2379: permission denied' } } }],
  }
  const error = await failure(move(hub, OWN, GIVEN))
  t.match(error.message, 'the state was not moved: etcd at h1:2379: permission denied')
  t.ok(error instanceof UserError && error.hint?.includes(`logs ${MOVE_POD}`))
  t.notOk(
    hub.done.some((line) => line.startsWith('remove StatefulSet')),
    'what was there before is there',
  )
  hub.phase = { phase: 'Succeeded' }
  await move(hub, OWN, GIVEN)
  await move(hub, OWN, GIVEN)
  t.ok(hub.done.filter((line) => line === `create ${POD}`).length === 3)
  hub.phase = { phase: 'Failed', message: 'sealane: served by a broker\nreason: StateLocked' }
  hub.onCreate = (): void => {
    hub.phase = { phase: 'Succeeded' }
  }
  await move(hub, OWN, GIVEN)
  t.equal(hub.done.filter((line) => line === `create ${POD}`).length, 5, 'a session that ends is waited for')
  hub.phase = { phase: 'Failed' }
  hub.onCreate = undefined
  t.match(await messageOf(move(hub, OWN, GIVEN)), `Pod sealane-broker/${MOVE_POD} has failed`)
})
