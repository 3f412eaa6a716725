import fc from 'fast-check'
import t from 'tap'
import { ANNOTATION_PODS, isPodKey, podKey, podsOf, podsText } from '../../../model/services/merge-services.ts'
import type { EndpointSlice } from '../../../model/objects.ts'
import { sliceObject } from '../../support/objects/service-objects.ts'

function slice(count: number, text: string | undefined): EndpointSlice {
  const annotations = text === undefined ? {} : { annotations: { [ANNOTATION_PODS]: text } }
  const endpoints = Array.from({ length: count }, () => ({ addresses: ['10.0.0.1'] }))
  return sliceObject({ name: 'web', ...annotations }, { endpoints })
}

t.test('keys of pods, and of nothing else', async (t) => {
  const rows = [
    [undefined, false],
    [{}, false],
    [{ kind: 'Pod' }, false],
    [{ kind: 'Node', uid: 'a' }, false],
    [{ kind: 'Pod', uid: 'a' }, true],
    [{ kind: 'Pod', name: 'web-0' }, true],
  ] as const
  for (const [targetRef, has] of rows) {
    const key = podKey(targetRef === undefined ? {} : { targetRef })
    t.equal(key !== undefined && isPodKey(key), has, JSON.stringify(targetRef))
  }
  t.equal(podKey({ targetRef: { kind: 'Pod', uid: 'a', name: 'x' } }), podKey({ targetRef: { kind: 'Pod', uid: 'a' } }))
  t.not(podKey({ targetRef: { kind: 'Pod', uid: 'a' } }), podKey({ targetRef: { kind: 'Pod', uid: 'b' } }))
})

t.test('what is written is read back, whatever the keys are', async () => {
  const key = fc.oneof(fc.constant(undefined), fc.constantFrom('0a1b2c3d', 'f'), fc.string({ maxLength: 20 }))
  fc.assert(
    fc.property(fc.array(key, { maxLength: 10 }), (keys) => {
      const wanted = keys.map((one) => (one !== undefined && isPodKey(one) ? one : undefined))
      const read = podsOf(slice(keys.length, podsText(keys)))
      const none = wanted.every((one) => one === undefined)
      return none ? read.every((one) => one === undefined) : JSON.stringify(read) === JSON.stringify(wanted)
    }),
  )
})

t.test('an annotation that does not fit its slice counts for nothing', async (t) => {
  for (const text of ['a', 'a,b,c', '']) t.strictSame(podsOf(slice(2, text)), [], text)
})
