/** Which requests the console answers: method, Host, Origin, token. */
import t from 'tap'
import { type AdmissionRules, admit, cookieName } from '../../console/server/admission.ts'

const LOCAL: AdmissionRules = {
  scheme: 'http',
  host: '127.0.0.1',
  port: 9480,
  token: undefined,
  session: 's'.repeat(43),
}
const TOKEN = 'correct-horse-battery'
const OPEN: AdmissionRules = { ...LOCAL, host: '192.0.2.7', port: 8443, scheme: 'https', token: TOKEN }
const ALL: AdmissionRules = { ...OPEN, host: '0.0.0.0' }

type Row = readonly [what: string, rules: AdmissionRules, request: Request, outcome: number | 'answer' | 'login']
interface Request {
  readonly method?: string
  readonly path?: string
  readonly [header: string]: string | undefined
}

const COOKIE = cookieName(8443)
const HERE = { host: '127.0.0.1:9480' }
const THERE = { host: '192.0.2.7:8443' }
const ROWS: readonly Row[] = [
  ['the page', LOCAL, HERE, 'answer'],
  ['by name', LOCAL, { host: 'localhost:9480' }, 'answer'],
  ['by IPv6', LOCAL, { host: '[::1]:9480' }, 'answer'],
  ['upper case', LOCAL, { host: 'LOCALHOST:9480' }, 'answer'],
  ['its own origin', LOCAL, { ...HERE, origin: 'http://127.0.0.1:9480' }, 'answer'],
  ['its own script', LOCAL, { ...HERE, path: '/a.js', 'sec-fetch-site': 'same-origin' }, 'answer'],
  ['a bookmark', LOCAL, { ...HERE, path: '/api/state', 'sec-fetch-site': 'none' }, 'answer'],
  ['a link of another page', LOCAL, { ...HERE, 'sec-fetch-site': 'cross-site' }, 'answer'],
  ['rebinding: a name that was turned here', LOCAL, { host: 'evil.example:9480' }, 403],
  ['rebinding: a name that begins like ours', LOCAL, { host: 'localhost.evil.example:9480' }, 403],
  ['another port', LOCAL, { host: '127.0.0.1:80' }, 403],
  ['no port', LOCAL, { host: '127.0.0.1' }, 403],
  ['no Host', LOCAL, {}, 403],
  ['an empty Host', LOCAL, { host: '' }, 403],
  ['a Host with a user', LOCAL, { host: 'a@127.0.0.1:9480' }, 403],
  ['a page of another origin', LOCAL, { ...HERE, origin: 'https://evil.example' }, 403],
  ['another port of this machine', LOCAL, { ...HERE, origin: 'http://127.0.0.1:3000' }, 403],
  ['a sandboxed frame', LOCAL, { ...HERE, origin: 'null' }, 403],
  ['another scheme', LOCAL, { ...HERE, origin: 'https://127.0.0.1:9480' }, 403],
  ['an image of another page', LOCAL, { ...HERE, path: '/api/state', 'sec-fetch-site': 'cross-site' }, 403],
  ['a sibling site', LOCAL, { ...HERE, path: '/api/events', 'sec-fetch-site': 'same-site' }, 403],
  ...['POST', 'PUT', 'DELETE', 'HEAD', 'OPTIONS', 'TRACE', ''].map((method): Row => [
    `method ${method}`,
    LOCAL,
    { ...HERE, method },
    405,
  ]),
  ['no login without a token', LOCAL, { ...HERE, method: 'POST', path: '/login' }, 405],
  ['no token', OPEN, THERE, 401],
  ['a token', OPEN, { ...THERE, authorization: `Bearer ${TOKEN}` }, 'answer'],
  ['another token', OPEN, { ...THERE, authorization: 'Bearer correct-horse-batterx' }, 401],
  ['a part of the token', OPEN, { ...THERE, authorization: 'Bearer correct-horse' }, 401],
  ['the token as a password', OPEN, { ...THERE, authorization: `Basic ${TOKEN}` }, 401],
  ['a cookie', OPEN, { ...THERE, cookie: `a=b; ${COOKIE}=${LOCAL.session}` }, 'answer'],
  ['the token as a cookie', OPEN, { ...THERE, cookie: `${COOKIE}=${TOKEN}` }, 401],
  ['an empty cookie', OPEN, { ...THERE, cookie: `${COOKIE}=` }, 401],
  ['a token does not excuse a foreign Host', OPEN, { host: 'x:8443', authorization: `Bearer ${TOKEN}` }, 403],
  ['log in', OPEN, { ...THERE, method: 'POST', path: '/login', origin: 'https://192.0.2.7:8443' }, 'login'],
  ['log in from elsewhere', OPEN, { ...THERE, method: 'POST', path: '/login', origin: 'https://evil.example' }, 403],
  ['everywhere: an address', ALL, { host: '198.51.100.1:8443', authorization: `Bearer ${TOKEN}` }, 'answer'],
  ['everywhere: a name', ALL, { host: 'evil.example:8443', authorization: `Bearer ${TOKEN}` }, 403],
  ['the standard port', { ...OPEN, port: 443 }, { host: '192.0.2.7', authorization: `Bearer ${TOKEN}` }, 'answer'],
]

t.test('requests', async (t) => {
  for (const [what, rules, { method = 'GET', path = '/', ...headers }, outcome] of ROWS) {
    const admission = admit({ method, path, headers }, rules)
    t.equal(admission.t === 'refused' ? admission.code : admission.t, outcome, what)
  }
})
