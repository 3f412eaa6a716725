/** Callers of the broker's admin service: on its socket, on its port, and operators who mistake something. */
import type { AttackRow } from './row.ts'

const SERVER = '`protocol/admin/admin-server.ts`'
const REQUESTS = '`protocol/admin/admin-requests.ts`: each request has one form, and all else is dropped or refused.'

export const ADMIN: readonly AttackRow[] = [
  {
    id: 'admin-other-user',
    tried: 'Another user of the machine opens the socket, in a state directory that it can enter.',
    holds: 'It is not permitted to.',
    against: '`protocol/admin/admin-socket.ts`: the socket is made in a folder of mode 0700, and has mode 0600.',
  },
  {
    id: 'admin-socket-taken',
    tried: 'A link, a foreign file, a dead socket or a folder is where the socket of a starting broker goes.',
    holds: 'A link is not followed, what is no folder is replaced, and with a folder the broker says so and ends.',
    against: '`protocol/admin/admin-socket.ts`: the socket is moved to its place.',
  },
  {
    id: 'admin-listen-elsewhere',
    tried: 'A broker is to serve operators at all addresses, at one of its network, or at a name.',
    holds: 'It does not start.',
    against: '`broker/config/broker-config.ts`: only an address of the loopback is taken.',
  },
  {
    id: 'admin-port-from-network',
    tried: 'A machine beside the broker, as a pod behind a lane is, sends to the port and to 127.0.0.1 by a route.',
    holds: 'Nothing answers.',
    against: 'The port is bound to the loopback, and the kernel drops packets for the loopback from outside.',
  },
  {
    id: 'admin-http1',
    tried: 'A page in a browser sends evictions by HTTP/1.1, with its own host and with ours.',
    holds: 'It gets no answer, and nothing is changed.',
    against: `${SERVER}: HTTP/2 without a negotiation, which no browser speaks.`,
  },
  {
    id: 'admin-rebinding',
    tried: 'A caller of the port names a host of its own, or a page that it is from.',
    holds: 'Each call is refused with INVALID_ARGUMENT.',
    against: `${SERVER}: a call must name the loopback, and no origin.`,
  },
  {
    id: 'admin-frames',
    tried: 'A caller sends frames with a wrong length, compressed garbage, no JSON, and bytes that are no HTTP/2.',
    holds: 'Each ends with an error, and nothing is changed.',
    against: SERVER,
  },
  {
    id: 'admin-json',
    tried: 'Requests nest 100,000 deep, set __proto__, have numbers beyond all bounds, and fields of other types.',
    holds: 'Each is refused, or its unknown fields are dropped.',
    against: REQUESTS,
  },
  {
    id: 'admin-oversize',
    tried: 'A request has 300 KiB, and one of 40 KB unpacks to 40 MB.',
    holds: 'Both are refused with RESOURCE_EXHAUSTED.',
    against: `${SERVER}: the bound is that of what is unpacked.`,
  },
  {
    id: 'admin-operator-header',
    tried: 'A caller claims to be the broker, a member, or a name with newlines and escapes; one name has a MiB.',
    holds: 'The audit log has one line of ASCII for each act, by an operator, with at most 256 characters of a name.',
    against: '`protocol/admin/admin-wire.ts`, `broker/audit/audit-line.ts`: three fields are read, and escaped.',
  },
  {
    id: 'admin-port-claims-uid',
    tried: 'A caller of the port claims to be root of the broker’s machine.',
    holds: 'The audit log has no uid for it, and its address marks the name as claimed.',
    against: '`broker/admin/command-state.ts`: who comes by the port is on another machine.',
  },
  {
    id: 'admin-unknown-method',
    tried: 'A caller names methods that are no operations, some of which every object of JavaScript has.',
    holds: 'Each is UNIMPLEMENTED.',
    against: '`protocol/admin/admin-wire.ts`: methods are a list.',
  },
  {
    id: 'admin-clusterset-path',
    tried: 'A call is for a clusterset named ../x, /etc, or 4 KB of dots.',
    holds: 'It is refused, and no file outside is made or read.',
    against: '`broker/admin/command-state.ts`: a clusterset is a label that the store lists.',
  },
  {
    id: 'admin-idle-connections',
    tried: 'A thousand connections to the socket and to the port say nothing.',
    holds: 'At most 64 of each stay open, and operators and members are served meanwhile.',
    against: `${SERVER}: the oldest silent connection gives way, and idle ones are closed.`,
  },
  {
    id: 'admin-slow-backup',
    tried: 'Six callers ask for a backup and take nothing of it.',
    holds: 'Four are begun, other calls are answered, and no file stays when the callers are gone.',
    against: `${SERVER}: transfers are counted, and one that stalls for a minute is ended.`,
  },
  {
    id: 'admin-cut-restore',
    tried: 'A caller sends half of a backup, and vanishes.',
    holds: 'Nothing is staged, and no file stays.',
    against: `${SERVER}: what is cancelled is not what has ended.`,
  },
  {
    id: 'admin-token-as-id',
    tried: 'An operator revokes by the whole token, or by its secret, instead of by its id.',
    holds: 'It is refused, and the text is in no log, audit line or answer.',
    against: '`broker/members/join-tokens.ts`: only what has the form of an id is repeated.',
  },
  {
    id: 'admin-endless-certificate',
    tried: 'An operator names a device and a pipe as the certificate of the next authority.',
    holds: 'Both are refused at once.',
    against: '`broker/admin/authority-commands.ts`: only a small file is read.',
  },
]
