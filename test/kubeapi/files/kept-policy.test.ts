/** A traffic policy of a site that becomes invalid: what its status keeps, over restarts and removals. */
import t from 'tap'
import type { FileApi } from '../../../kubeapi/files/file-api.ts'
import type { TrafficPolicy } from '../../../model/objects.ts'
import { versionToKeep } from '../../../model/access/policy-versions.ts'
import { policyInForce } from '../../../model/services/services.ts'
import { eventually } from '../../support/eventually.ts'
import { observedAt } from '../../support/objects/access-objects.ts'
import { FileSite, synced } from './file-site.ts'

const yaml = (weight: number): string => `apiVersion: sealane.io/v1alpha1
kind: TrafficPolicy
metadata: { name: web, namespace: shop }
spec: { order: [{ clusters: [oslo], weights: { oslo: ${weight} } }] }
`

/** The policy once it has this weight; undefined waits until it is gone. */
async function seen(api: FileApi, weight: number | undefined): Promise<TrafficPolicy | undefined> {
  const cache = await synced(api, 'TrafficPolicy')
  const found = (): TrafficPolicy | undefined => cache.get('web', 'shop')
  await eventually(() => found()?.spec.order?.[0]?.weights?.['oslo'] === weight, { say: `weight ${weight}` })
  return found()
}

const generation = (policy: TrafficPolicy | undefined): number | undefined =>
  policy && policyInForce(policy)?.metadata.generation

t.test('a part of a site that starts while a policy is not valid finds its last valid version', async (t) => {
  const site = new FileSite(t)
  site.write('policy.yaml', yaml(7))
  const first = site.open()
  const valid = await seen(first, 7)
  if (valid === undefined) throw new Error('no policy')
  const inForce = versionToKeep(valid)
  await first.applyStatus({ ...valid, status: { conditions: observedAt(1), inForce } } as TrafficPolicy)
  // No weight above 0: the file is in order, and the policy is not.
  site.write('policy.yaml', yaml(0))
  t.equal(generation(await seen(first, 0)), 1)
  await first.close()
  const second = site.open()
  const later = await seen(second, 0)
  t.match([later?.metadata.generation, generation(later)], [2, 1], 'the next process')
  site.write('policy.yaml', '\n')
  await seen(second, undefined)
  site.write('policy.yaml', yaml(0))
  const again = await seen(second, 0)
  t.not(again?.metadata.uid, valid.metadata.uid)
  t.equal(generation(again), undefined, 'a policy that was removed takes along what it said')
})
