/** Refusals by the API server: the reason code of each, and when it is forgotten. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { Refusals } from '../../../kubeapi/kube/http/refusals.ts'
import { errorFromAnswer, noAnswer } from '../../../kubeapi/kube/kube-error.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const asked = (method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', path: string, verb = 'apply') => ({
  ...{ method, path, verb, title: path },
})
const SLICE = asked('PATCH', '/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-1')
const STATUS = asked('PATCH', '/apis/sealane.io/v1alpha1/gateways/gw1/status')
const LIST = asked('GET', '/apis/multicluster.x-k8s.io/v1beta1/serviceimports', 'list')
const LEASE = asked('PUT', '/apis/coordination.k8s.io/v1/namespaces/sealane-system/leases/sealane-agent')
const CORE = asked('DELETE', '/api/v1/namespaces/shop/services/web')

const forbidden = (verb: string) =>
  `endpointslices.discovery.k8s.io is forbidden: User "system:serviceaccount:sealane-system:sealane-agent" cannot ${verb} resource "endpointslices" in API group "discovery.k8s.io"`

/** The HTTP status, metav1.StatusReason and message of the answer, and the expected report. */
const ANSWERS: readonly (readonly [
  name: string,
  question: ReturnType<typeof asked>,
  status: number,
  reason: string,
  message: string,
  said: string | undefined,
])[] = [
  [
    'no right to write',
    SLICE,
    403,
    'Forbidden',
    forbidden('patch'),
    'PartForbidden patch endpointslices.discovery.k8s.io',
  ],
  [
    'no right to read',
    LIST,
    403,
    'Forbidden',
    forbidden('list'),
    'PartForbidden list serviceimports.multicluster.x-k8s.io',
  ],
  [
    'no right to a status',
    STATUS,
    403,
    'Forbidden',
    forbidden('patch'),
    'PartForbidden patch gateways.sealane.io/status',
  ],
  ['no right to the core', CORE, 403, 'Forbidden', forbidden('delete'), 'PartForbidden delete services'],
  [
    'a webhook says no',
    SLICE,
    403,
    'Forbidden',
    'admission webhook "deny.example.com" denied the request: not here',
    'AdmissionRefuses patch endpointslices.discovery.k8s.io by webhook deny.example.com',
  ],
  [
    'a webhook says no in another way',
    SLICE,
    400,
    'BadRequest',
    'admission webhook "deny.example.com" denied the request: bad',
    'AdmissionRefuses patch endpointslices.discovery.k8s.io by webhook deny.example.com',
  ],
  [
    'a webhook does not answer',
    LEASE,
    500,
    'InternalError',
    'Internal error occurred: failed calling webhook "w.example.com": failed to call webhook: Post "https://10.0.0.1/": dial tcp: connection refused',
    'AdmissionRefuses update leases.coordination.k8s.io by webhook w.example.com',
  ],
  [
    'a policy says no',
    SLICE,
    422,
    'Invalid',
    `endpointslices.discovery.k8s.io "web-1" is forbidden: ValidatingAdmissionPolicy 'no-slices' with binding 'all' denied request: no`,
    'AdmissionRefuses patch endpointslices.discovery.k8s.io by ValidatingAdmissionPolicy no-slices',
  ],
  [
    'a quota is used',
    SLICE,
    403,
    'Forbidden',
    'endpointslices "web-1" is forbidden: exceeded quota: few, requested: count/endpointslices=1, used: 3',
    'AdmissionRefuses patch endpointslices.discovery.k8s.io by quota few',
  ],
  [
    'etcd has no space',
    LEASE,
    500,
    '',
    'etcdserver: mvcc: database space exceeded',
    'ApiServerReadOnly update leases.coordination.k8s.io',
  ],
  ['one write fails', LEASE, 503, '', 'upstream connect error', undefined],
  [
    'an event',
    asked('POST', '/apis/events.k8s.io/v1/namespaces/shop/events'),
    403,
    'Forbidden',
    forbidden('create'),
    undefined,
  ],
  [
    'the namespace is going',
    SLICE,
    403,
    'Forbidden',
    'endpointslices "web-1" is forbidden: unable to create new content in namespace shop because it is being terminated',
    undefined,
  ],
  [
    'a policy whose parameter is not there yet',
    SLICE,
    422,
    'Invalid',
    `endpointslices "web-1" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no params found for policy binding with`,
    undefined,
  ],
  ['a read fails', LIST, 500, '', 'etcdserver: request timed out', undefined],
  [
    'the schema of an old definition',
    STATUS,
    422,
    'Invalid',
    'status.lanes: Too many: 9',
    'ObjectNotWritten patch gateways.sealane.io/status',
  ],
  ['too many requests', SLICE, 429, 'TooManyRequests', 'later', undefined],
  ['another was faster', LEASE, 409, 'Conflict', 'the object has been modified', undefined],
  ['it is not there', CORE, 404, 'NotFound', 'services "web" not found', undefined],
  ['who asks is not known', SLICE, 401, 'Unauthorized', 'Unauthorized', undefined],
  [
    'the definition is going',
    SLICE,
    403,
    'Forbidden',
    'create not allowed while custom resource definition is terminating',
    undefined,
  ],
]

function lineOf({ code, what, by }: { code: string; what: string; by?: string }): string {
  return `${code} ${what}${by === undefined ? '' : ` by ${by}`}`
}

for (const [name, question, status, reason, message, said] of ANSWERS) {
  t.test(name, async (t) => {
    const clock = new FakeClock()
    const refusals = new Refusals(clock)
    refusals.failed(question, errorFromAnswer(question, status, { message, reason }))
    t.same(refusals.list().map(lineOf), said === undefined ? [] : [said])
    refusals.succeeded(question)
    t.same(refusals.list(), [], 'what succeeds is refused no more')
  })
}

t.test('what goes by: the same of several objects, other requests, and what nobody tries any more', async (t) => {
  const clock = new FakeClock()
  const refusals = new Refusals(clock)
  const fail = (question: ReturnType<typeof asked>): void => {
    refusals.failed(question, errorFromAnswer(question, 403, { message: forbidden('patch'), reason: 'Forbidden' }))
  }
  const second = { ...SLICE, path: SLICE.path.replace('web-1', 'web-2') }
  fail(SLICE)
  await clock.advance(1000)
  fail(second)
  t.match(refusals.list(), [{ places: 2, since: new Date(clock.now() - 1000).toISOString() }])
  refusals.succeeded(second)
  refusals.succeeded(STATUS)
  t.match(refusals.list(), [{ places: 1 }], 'the other object still waits')
  await clock.advance(119_000)
  t.equal(refusals.list().length, 1)
  await clock.advance(2000)
  t.same(refusals.list(), [], 'nobody has tried it for two minutes')
})

t.test('what others have made needs no right to make it', async (t) => {
  const refusals = new Refusals(new FakeClock())
  const secrets = '/api/v1/namespaces/sealane-system/secrets'
  const create = { ...asked('POST', secrets, 'create'), creates: `${secrets}/sealane-identity` }
  const own = `${secrets}/sealane-identity`
  const fail = (): void =>
    refusals.failed(create, errorFromAnswer(create, 403, { message: forbidden('create'), reason: 'Forbidden' }))
  for (const found of [asked('GET', own, 'get'), asked('PATCH', own), asked('PUT', own)]) {
    fail()
    refusals.succeeded(asked('DELETE', own))
    refusals.succeeded(asked('GET', `${secrets}/another`, 'get'))
    t.same(refusals.list().map(lineOf), ['PartForbidden create secrets'])
    refusals.succeeded(found)
    t.same(refusals.list(), [], `${found.method} finds it`)
  }
  const apply = asked('PATCH', own)
  refusals.failed(apply, errorFromAnswer(apply, 403, { message: forbidden('create'), reason: 'Forbidden' }))
  t.same(refusals.list().map(lineOf), ['PartForbidden create secrets'], 'an apply of what is not there creates')
  refusals.succeeded(asked('GET', own, 'get'))
  t.same(refusals.list(), [])
  fail()
  refusals.failed(create, errorFromAnswer(create, 409, { message: 'it exists', reason: 'AlreadyExists' }))
  t.same(refusals.list(), [], 'and who tries again hears that it is there')
})

t.test('who has not tried for a Lease for half a minute needs it no more', async (t) => {
  const clock = new FakeClock()
  const refusals = new Refusals(clock)
  refusals.failed(LEASE, errorFromAnswer(LEASE, 403, { message: forbidden('update'), reason: 'Forbidden' }))
  const other = asked('PATCH', LEASE.path)
  refusals.failed(other, errorFromAnswer(other, 403, { message: forbidden('patch'), reason: 'Forbidden' }))
  await clock.advance(30_000)
  t.equal(refusals.list().length, 2)
  await clock.advance(1)
  t.same(refusals.list().map(lineOf), ['PartForbidden patch leases.coordination.k8s.io'], 'which is tried less often')
})

t.test('what is seldom tried is remembered for longer, and nothing is revived', async (t) => {
  const clock = new FakeClock()
  const refusals = new Refusals(clock)
  const secret = asked('PUT', '/api/v1/namespaces/sealane-system/secrets/sealane-identity')
  const fail = (question: ReturnType<typeof asked>): void =>
    refusals.failed(question, errorFromAnswer(question, 403, { message: forbidden('update'), reason: 'Forbidden' }))
  fail(secret)
  fail(SLICE)
  await clock.advance(600_000)
  fail(SLICE)
  t.match(refusals.list(), [
    { what: 'patch endpointslices.discovery.k8s.io', since: new Date(clock.now()).toISOString(), places: 1 },
    { what: 'update secrets' },
  ])
})

t.test('writes that fail are a server that takes none where reads succeed, and after more than one', async (t) => {
  const clock = new FakeClock()
  const refusals = new Refusals(clock)
  const late = (): void => refusals.failed(LEASE, noAnswer(LEASE, 'https://10.0.0.1', 3000))
  late()
  await clock.advance(3000)
  late()
  t.same(refusals.list(), [], 'nothing is answered: it is not there at all')
  refusals.succeeded(LIST)
  t.same(refusals.list(), [], 'it is back, and nobody has tried to write')
  await clock.advance(1)
  late()
  t.same(refusals.list(), [], 'three that came late within seconds are a busy machine')
  for (let n = 0; n < 4; n += 1) {
    await clock.advance(6000)
    late()
  }
  t.match(refusals.list().map(lineOf), ['ApiServerReadOnly update leases.coordination.k8s.io'], 'none was taken')
  refusals.succeeded(STATUS)
  late()
  refusals.succeeded(LIST)
  t.same(refusals.list(), [], 'once is nothing')
})

t.test('a server takes writes again as soon as it takes one, whichever', async (t) => {
  const refusals = new Refusals(new FakeClock())
  refusals.failed(LEASE, errorFromAnswer(LEASE, 500, { message: 'etcdserver: mvcc: database space exceeded' }))
  refusals.failed(SLICE, noAnswer(SLICE, 'https://10.0.0.1', 10_000))
  refusals.succeeded(LIST)
  t.match(refusals.list().map(lineOf), ['ApiServerReadOnly update leases.coordination.k8s.io'], 'a read is no write')
  refusals.succeeded(STATUS)
  t.same(refusals.list(), [])
})

t.test('whatever the server says, there is little of it, on one line, without names of objects', async (t) => {
  const words = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 300 }),
    fc.string({ maxLength: 300 }).map((text) => `admission webhook "${text}" denied the request`),
    fc.constant(forbidden('patch')),
  )
  const one = fc.record({
    method: fc.constantFrom('GET', 'POST', 'PUT', 'PATCH', 'DELETE'),
    path: fc.oneof(
      fc.webPath(),
      fc.string().map((name) => `/api/v1/namespaces/secret-name/pods/${encodeURIComponent(name)}`),
    ),
    status: fc.constantFrom(400, 401, 403, 404, 409, 410, 422, 429, 500, 503),
    message: words,
  })
  fc.assert(
    fc.property(fc.array(one, { maxLength: 400 }), (all) => {
      const refusals = new Refusals(new FakeClock())
      for (const { method, path, status, message } of all) {
        const question = asked(method, path)
        refusals.failed(question, errorFromAnswer(question, status, { message }))
      }
      const listed = refusals.list()
      assert.ok(listed.length <= 50)
      for (const { by = '', what, places } of listed) {
        assert.ok(by.length <= 100 && places <= 100)
        assert.doesNotMatch(by, /\p{Cc}/u)
        assert.doesNotMatch(what, /secret-name/)
      }
    }),
    { numRuns: 60 },
  )
  t.pass()
})
