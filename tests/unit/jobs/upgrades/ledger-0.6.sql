BEGIN TRANSACTION;
CREATE TABLE paretune_reservations (
	run_id VARCHAR(64) NOT NULL, 
	month VARCHAR(7) NOT NULL, 
	origin VARCHAR(16) NOT NULL, 
	tags TEXT NOT NULL, 
	worst_usd FLOAT NOT NULL, 
	recorded_usd FLOAT, 
	reserved_at FLOAT NOT NULL, 
	PRIMARY KEY (run_id)
);
INSERT INTO "paretune_reservations" VALUES('EARLIER','2027-01','measured','{"user": "ana"}',2.0,0.02,1800000000.0);
INSERT INTO "paretune_reservations" VALUES('RUN','2027-01','measured','{"user": "ana"}',1.0,NULL,1800000000.5);
COMMIT;
