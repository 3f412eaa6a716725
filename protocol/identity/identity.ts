/** Certificates, keys and join tokens. */
export {
  BACKDATE_MS,
  type CertificateFacts,
  DEFAULT_RENEWAL_GRACE_MS,
  MAX_RENEWAL_GRACE_MS,
  MEMBER_VALIDITY_MS,
  SERVER_NAME,
  certificateProblem,
  certificateToPem,
  certificatesFromPem,
  checkBrokerName,
  fingerprint,
  readCertificate,
  serverNameOf,
} from './certificates.ts'
export { createEtcdCa, createEtcdCertificate } from './etcd-certificates.ts'
export { createKey, hashOfFingerprint, keyFingerprint, keyFromPem, keyToPem, publicKeyHash } from './keys.ts'
export { PROCESS_HEADER, markHashOf, newProcessMark } from './process-mark.ts'
export {
  HUB_SERVER_NAME,
  type NodeCertificateFacts,
  createHubCertificate,
  createSiteCa,
  issueNodeCertificate,
  readNodeCertificate,
} from './site-certificates.ts'
export { JoinToken, TokenError, createJoinToken, hashTokenSecret, parseJoinToken } from './token.ts'
export {
  CsrError,
  type Identity,
  type Issuer,
  createCa,
  createCsr,
  createServerCertificate,
  csrKeyHash,
  issueMemberCertificate,
} from './x509.ts'
