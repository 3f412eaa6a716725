/** Configuration and metrics of a broker. */
export {
  AUDIT_STDOUT,
  type AuditConfig,
  type BrokerConfig,
  BrokerConfigError,
  type BrokerLimits,
  DEFAULT_BROKER_CONFIG,
  DEFAULT_TOKEN_TTL_MS,
  DEFAULT_TOKEN_USES,
  type EtcdStoreConfig,
  type SignerConfig,
  checkBrokerConfig,
  checkRanges,
  parseAdminListen,
  parseListen,
} from './broker-config.ts'
export { type BrokerMetrics, brokerMetrics } from './broker-metrics.ts'
